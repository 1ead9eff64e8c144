//! The eight words of a cache line, compared with one at once, without branches.

use cats_sync::facade::AtomicU64;

/// Bit `2 * i` is set where word `i` of the line is `word`. Without branches, so that the processor need not wait for the line to
/// come from memory before it goes on to what follows. Each word is read as by a load that acquires.
///
/// # Safety
/// `line` is the address of eight words, aligned to 64, that are alive and written atomically only.
#[inline]
pub(crate) unsafe fn equal_words(line: *const AtomicU64, word: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(direct, loom, shuttle))))]
    {
        let mask: u32;
        // SAFETY: reads the line as 16 aligned bytes at a time, of which each eight are what an atomic load of the word gives.
        // On this architecture every load acquires.
        unsafe {
            std::arch::asm!(
                "movq {word}, {key}",
                "punpcklqdq {word}, {word}",
                "movdqa {a}, {word}",
                "movdqa {b}, {word}",
                "movdqa {c}, {word}",
                "pcmpeqd {a}, [{line}]",
                "pcmpeqd {b}, [{line} + 16]",
                "pcmpeqd {c}, [{line} + 32]",
                "pcmpeqd {word}, [{line} + 48]",
                "packssdw {a}, {b}",
                "packssdw {c}, {word}",
                "packsswb {a}, {c}",
                "pmovmskb {mask:e}, {a}",
                key = in(reg) word,
                line = in(reg) line,
                mask = lateout(reg) mask,
                word = out(xmm_reg) _,
                a = out(xmm_reg) _,
                b = out(xmm_reg) _,
                c = out(xmm_reg) _,
                options(readonly, nostack, preserves_flags),
            );
        }
        // A bit for each half of a word. Equal are words of which both halves are.
        mask & mask >> 1 & 0x5555
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(direct, loom, shuttle)))))]
    {
        use cats_sync::facade::Ordering::Acquire;
        // SAFETY: the caller's promise.
        let words = unsafe { &*line.cast::<[AtomicU64; 8]>() };
        let equal = |other: &AtomicU64| u32::from(other.load(Acquire) == word);
        words.iter().rev().fold(0, |mask, other| mask << 2 | equal(other))
    }
}

/// How many of the eight words are below `word`: two instructions a word, where the compiler makes bytes of the comparisons, and
/// a vector of these.
#[inline]
pub(crate) fn words_below(line: &[u64; 8], word: u64) -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let (even, odd): (usize, usize);
        // SAFETY: reads the line. Each comparison leaves its result in the carry flag, which is added to one of two counts.
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
    #[cfg(not(target_arch = "x86_64"))]
    line.iter().map(|&other| usize::from(other < word)).sum()
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[repr(align(64))]
    struct Line([u64; 8]);

    proptest! {
        #[test]
        fn a_line_is_compared_as_its_words_are(words in prop::array::uniform8(any::<u64>()), which in 0..8usize) {
            for word in [0, 1, words[which], words[which].wrapping_add(1), words[which] ^ 1 << 32, u64::MAX] {
                let line = Line(words);
                let below = words.iter().filter(|&&other| other < word).count();
                prop_assert_eq!(words_below(&line.0, word), below);
                let equal = (0..8).filter(|&i| words[i] == word).map(|i| 1 << (2 * i)).sum::<u32>();
                // SAFETY: an aligned line that nobody writes.
                prop_assert_eq!(unsafe { equal_words(line.0.as_ptr().cast(), word) }, equal);
            }
        }
    }
}
