//! Treaps: search trees by key, and heaps by random priority. So the height of a tree of n entries is O(log n) with
//! high probability, which depends neither on the keys nor on the operations.
//!
//! Source: Aragon, Seidel, "Randomized search trees", FOCS 1989. No recursion, because the height is only expected.

use super::{slot, Balance, Link, Path, Turn, LEFT, RIGHT};
use crate::shared::random::random;
use std::ptr;

/// See the module's documentation. A node's rank is its priority, which is at most its parent's.
pub struct Treap;

// SAFETY: nodes are linked where the paths lead, and joined in order. None is dropped.
unsafe impl Balance for Treap {
    unsafe fn insert(root: &mut Link, path: &[Turn], node: Link) {
        let priority = i64::from(random());
        // SAFETY: the caller's promise.
        unsafe {
            (*node).rank = priority;
            let above = path.iter().take_while(|turn| (*turn.node).rank >= priority).count();
            let (above, below) = path.split_at(above);
            *slot(root, above) = node;
            // The subtree that was here is split in two along the rest of the path.
            let mut open = [&raw mut (*node).child[LEFT], &raw mut (*node).child[RIGHT]];
            for turn in below {
                // Where the path goes right, the node is below the key.
                let half = 1 - turn.side;
                *open[half] = turn.node;
                open[half] = &raw mut (*turn.node).child[turn.side];
            }
            *open[LEFT] = ptr::null_mut();
            *open[RIGHT] = ptr::null_mut();
        }
    }

    unsafe fn remove(root: &mut Link, path: &mut Path) -> Link {
        // SAFETY: the caller's promise.
        unsafe {
            let place = slot(root, path);
            let node = *place;
            let [left, right] = (*node).child;
            *place = Treap::join(left, right);
            node
        }
    }

    /// Splits at the root, which becomes the root of the right half: O(1).
    unsafe fn split(root: Link) -> (Link, Link) {
        // SAFETY: the caller's promise.
        unsafe {
            let left = std::mem::replace(&mut (*root).child[LEFT], ptr::null_mut());
            if left.is_null() {
                return (root, std::mem::replace(&mut (*root).child[RIGHT], ptr::null_mut()));
            }
            (left, root)
        }
    }

    /// Merges the facing edges of two trees by priority. Either tree may be empty.
    unsafe fn join(mut left: Link, mut right: Link) -> Link {
        let mut root = ptr::null_mut();
        let mut open: *mut Link = &raw mut root;
        // SAFETY: the caller's promise; `open` is in the root or in a node of the trees.
        unsafe {
            while !left.is_null() && !right.is_null() {
                let (top, side) = if (*left).rank >= (*right).rank {
                    (&mut left, RIGHT)
                } else {
                    (&mut right, LEFT)
                };
                *open = *top;
                open = &raw mut (**top).child[side];
                *top = *open;
            }
            *open = if left.is_null() { right } else { left };
        }
        root
    }
}
