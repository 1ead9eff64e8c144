//! Size classes: steps of 8 bytes from 16 to 256, then eight for each doubling up to 8 KiB, then equal parts of a page.
//!
//! Above 2 KiB these eight are odd multiples of 128. Blocks at multiples of a large power of two would all begin in the
//! same few sets of a cache. There are also classes of 4 and of 8 KiB, so that what has just these sizes wastes nothing.
//!
//! If a class serves a size that is a multiple of 16, 64 or 128, the class is such a multiple too. Blocks are at
//! multiples of the class from a page's start. So they are aligned as [`super::alloc`] promises.

/// Bytes of a page.
pub const PAGE: usize = 64 << 10;
/// The largest size that has a class.
pub const LARGEST: usize = PAGE / 2;
/// The number of classes.
pub const CLASSES: usize = SMALL + 5 * 8 + 2 + 6;

/// Classes in steps of 8 bytes.
const SMALL: usize = (256 - 16) / 8 + 1;

/// Up to this size the table has an element for each 8 bytes, above it for each 128.
const FINE: usize = 1024;

const SIZES: [u16; CLASSES] = {
    let mut sizes = [0; CLASSES];
    let mut at = 0;
    while at < SMALL {
        sizes[at] = 16 + 8 * at as u16;
        at += 1;
    }
    let mut base = 256;
    while base < 8192 {
        let less = if base < 2048 { 0 } else { 128 };
        let mut part = 1;
        while part <= 8 {
            sizes[at] = base + base / 8 * part - less;
            at += 1;
            part += 1;
        }
        base *= 2;
        if less > 0 {
            sizes[at] = base;
            at += 1;
        }
    }
    while at < CLASSES {
        // From seven blocks a page down to two.
        let share = PAGE / (2 + CLASSES - 1 - at);
        sizes[at] = (share / 128 * 128) as u16;
        at += 1;
    }
    sizes
};

const fn table<const N: usize>(step: usize) -> [u8; N] {
    let mut table = [0; N];
    let mut at = 0;
    let mut class = 0;
    while at < N {
        while (SIZES[class] as usize) < at * step {
            class += 1;
        }
        table[at] = class as u8;
        at += 1;
    }
    table
}

static FINE_CLASSES: [u8; FINE / 8 + 1] = table(8);
static COARSE_CLASSES: [u8; LARGEST / 128 + 1] = table(128);

/// The class of a size of at most [`LARGEST`].
#[inline]
pub fn of(size: usize) -> usize {
    if size > FINE {
        return of_coarse(size);
    }
    FINE_CLASSES[size.div_ceil(8)] as usize
}

/// The class of a size above `FINE`. Not inlined: otherwise the compiler selects a table before it reads one.
#[inline(never)]
fn of_coarse(size: usize) -> usize {
    COARSE_CLASSES[size.div_ceil(128)] as usize
}

/// The bytes of a class' blocks.
#[inline]
pub fn size(class: usize) -> usize {
    SIZES[class] as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_a_tight_class_of_its_alignment() {
        for bytes in 1..=LARGEST {
            let class = of(bytes);
            assert!(
                size(class) >= bytes && (class == 0 || size(class - 1) < bytes),
                "{bytes}"
            );
            let alignment = [128, 64, 16]
                .into_iter()
                .find(|n| bytes.is_multiple_of(*n))
                .unwrap_or(8);
            assert!(size(class).is_multiple_of(alignment), "{bytes}");
            let waste = size(class) - bytes;
            assert!(
                waste < 8
                    || class == 0
                    || (bytes > 256 && waste * 8 <= bytes)
                    || (bytes > 8192 && waste * 100 <= bytes * 51),
                "{bytes}"
            );
        }
    }
}
