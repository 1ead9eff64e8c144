//! The eight words of a cache line, compared with one at once.

use cats_sync::facade::AtomicU64;

/// Bit `2 * i` is set where word `i` of the line is `word`. Without branches, so that the processor need not wait for the line to
/// come from memory before it goes on to what follows. Each word is read as by a load that acquires.
///
/// # Safety
/// `line` is the address of eight words, aligned to 64, that are alive and written atomically only.
#[inline]
pub(crate) unsafe fn equal_words(line: *const AtomicU64, word: u64) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
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
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle)))))]
    {
        use cats_sync::facade::Ordering::Acquire;
        // SAFETY: the caller's promise.
        let words = unsafe { &*line.cast::<[AtomicU64; 8]>() };
        let equal = |other: &AtomicU64| u32::from(other.load(Acquire) == word);
        words.iter().rev().fold(0, |mask, other| mask << 2 | equal(other))
    }
}
