//! Compares the eight words of a cache line with one word at once, without branches. It uses one vector instruction
//! where the processor has AVX-512, and otherwise instructions that all processors of the architecture have. With
//! `--cfg portable` there is no assembly.
//!
//! A const parameter selects the variant. So a caller checks [`wide`] once, and not for each cache line. The inline
//! assembly uses vector registers above those that the compiler uses. So the upper halves of the compiler's registers
//! stay zero, which avoids transition penalties between instruction sets.

#[cfg(all(target_arch = "x86_64", not(any(direct, loom, shuttle, portable))))]
mod wide {
    use cats_sync::facade::{AtomicBool, Ordering::Relaxed};

    static WIDE: AtomicBool = AtomicBool::new(false);

    /// Detects whether processor and operating system support the wide variant. Until then [`wide`] is false.
    pub(crate) fn detect() {
        let found = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt");
        // Relaxed: orders no other memory access.
        WIDE.store(found, Relaxed);
    }

    /// Whether functions of this module may be called with `WIDE`.
    #[inline(always)]
    pub(crate) fn wide() -> bool {
        // Relaxed: as in `detect`.
        WIDE.load(Relaxed)
    }
}
#[cfg(not(all(target_arch = "x86_64", not(any(direct, loom, shuttle, portable)))))]
mod wide {
    pub(crate) fn detect() {}
    #[inline(always)]
    pub(crate) fn wide() -> bool {
        false
    }
}
pub(crate) use wide::{detect, wide};

/// Returns the same reference, but hides its origin from the compiler. Otherwise the compiler computes the address
/// again for each use.
#[inline(always)]
pub(crate) fn opaque<T>(reference: &T) -> &T {
    #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(portable)))]
    let reference = {
        let mut address: *const T = reference;
        // SAFETY: the assembly has no instructions, and the address stays the same.
        unsafe {
            std::arch::asm!("/* {} */", inout(reg) address, options(pure, readonly, nostack, preserves_flags));
            &*address
        }
    };
    reference
}

/// Counts the words of the cache line that are below `word`.
///
/// # Safety
/// `WIDE` only if [`wide`] is true.
#[inline(always)]
pub(crate) unsafe fn words_below<const WIDE: bool>(line: &[u64; 8], word: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(any(direct, loom, shuttle, portable))))]
    if WIDE {
        let below: usize;
        // SAFETY: only reads the cache line, and the processor has the instructions. Predicate 6 means: the vector's
        // word is greater.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {word}",
                "vpcmpuq k1, zmm16, [{line}], 6",
                "kmovw {below:e}, k1",
                "popcnt {below:e}, {below:e}",
                line = in(reg) line,
                word = in(reg) word,
                below = lateout(reg) below,
                out("xmm16") _,
                out("k1") _,
                options(readonly, nostack, pure),
            );
        }
        return below;
    }
    #[cfg(all(target_arch = "x86_64", not(portable)))]
    {
        let (even, odd): (usize, usize);
        // SAFETY: only reads the cache line. Each comparison leaves its result in the carry flag, which is added to one
        // of two counters. That is two instructions a word. The compiler's own code would turn the results into bytes
        // and those into a vector.
        unsafe {
            std::arch::asm!(
                "xor {even:e}, {even:e}",
                "xor {odd:e}, {odd:e}",
                "cmp qword ptr [{line}], {word}",
                "adc {even}, 0",
                "cmp qword ptr [{line} + 8], {word}",
                "adc {odd}, 0",
                "cmp qword ptr [{line} + 16], {word}",
                "adc {even}, 0",
                "cmp qword ptr [{line} + 24], {word}",
                "adc {odd}, 0",
                "cmp qword ptr [{line} + 32], {word}",
                "adc {even}, 0",
                "cmp qword ptr [{line} + 40], {word}",
                "adc {odd}, 0",
                "cmp qword ptr [{line} + 48], {word}",
                "adc {even}, 0",
                "cmp qword ptr [{line} + 56], {word}",
                "adc {odd}, 0",
                line = in(reg) line,
                word = in(reg) word,
                even = out(reg) even,
                odd = out(reg) odd,
                options(readonly, nostack, pure),
            );
        }
        even + odd
    }
    // On aarch64 the compiler makes vector instructions of this.
    #[cfg(not(all(target_arch = "x86_64", not(portable))))]
    line.iter().map(|&other| usize::from(other < word)).sum()
}

/// Counts the words below `word` among sixteen words in ascending order.
///
/// # Safety
/// As for [`words_below`].
#[inline(always)]
pub(crate) unsafe fn words_below_of_16<const WIDE: bool>(lines: &[[u64; 8]; 2], word: u64) -> usize {
    #[cfg(all(target_arch = "x86_64", not(any(direct, loom, shuttle, portable))))]
    if WIDE {
        let below: usize;
        // SAFETY: as in `words_below`.
        unsafe {
            std::arch::asm!(
                "vpbroadcastq zmm16, {word}",
                "vpcmpuq k1, zmm16, [{lines}], 6",
                "vpcmpuq k2, zmm16, [{lines} + 64], 6",
                "kunpckbw k1, k2, k1",
                "kmovw {below:e}, k1",
                "popcnt {below:e}, {below:e}",
                lines = in(reg) lines,
                word = in(reg) word,
                below = lateout(reg) below,
                out("xmm16") _,
                out("k1") _,
                out("k2") _,
                options(readonly, nostack, pure),
            );
        }
        return below;
    }
    let second = usize::from(lines[0][7] < word);
    // SAFETY: the caller's promise.
    8 * second + unsafe { words_below::<WIDE>(&lines[second], word) }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[repr(align(64))]
    struct Lines([[u64; 8]; 2]);

    /// The results of both variants, if the processor has both.
    fn below(lines: &Lines, word: u64) -> Vec<(usize, usize)> {
        // SAFETY: `wide` allows it.
        let mut counts = vec![unsafe {
            (
                words_below::<false>(&lines.0[0], word),
                words_below_of_16::<false>(&lines.0, word),
            )
        }];
        if wide() {
            // SAFETY: as above.
            counts.push(unsafe {
                (
                    words_below::<true>(&lines.0[0], word),
                    words_below_of_16::<true>(&lines.0, word),
                )
            });
        }
        counts
    }

    proptest! {
        #[test]
        fn a_line_is_compared_as_its_words_are(mut words in prop::array::uniform16(any::<u64>()), small: bool, which in 0..16usize) {
            detect();
            if small {
                words = words.map(|word| word % 8);
            }
            words.sort_unstable();
            let lines = Lines([0, 8].map(|at| std::array::from_fn(|i| words[at + i])));
            let near = words[which];
            for word in [0, 1, near, near.wrapping_add(1), near.wrapping_sub(1), near ^ 1 << 32, near ^ 1 << 63, u64::MAX] {
                let count = |words: &[u64]| words.iter().filter(|&&other| other < word).count();
                for counts in below(&lines, word) {
                    prop_assert_eq!(counts, (count(&words[..8]), count(&words)));
                }
            }
        }
    }
}
