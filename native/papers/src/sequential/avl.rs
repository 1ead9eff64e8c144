//! AVL trees. The heights of a node's subtrees differ by at most one, so the height of a tree of n entries is at most
//! 1.44 log2 n.
//!
//! Source: Adelson-Velskii, Landis, "An algorithm for the organization of information", 1962. Joining: Knuth, "The Art
//! of Computer Programming", volume 3, section 6.2.3.

use super::{slot, Balance, Link, Path, Turn, LEFT, RIGHT};
use std::ptr;

/// See the module's documentation. A node's rank is its balance: the height of its right subtree minus that of its left
/// subtree.
pub struct Avl;

/// The balance of a node whose subtree on this side is the higher one.
fn lean(side: usize) -> i64 {
    if side == RIGHT {
        1
    } else {
        -1
    }
}

/// The height of a tree. O(log n).
unsafe fn height(mut at: Link) -> i64 {
    let mut height = 0;
    while !at.is_null() {
        height += 1;
        // SAFETY: links lead to nodes of the caller's tree.
        at = unsafe { (*at).child[if (*at).rank < 0 { LEFT } else { RIGHT }] };
    }
    height
}

/// Restores the balance of a tree whose root has balance 2 or -2. Returns the new root, and whether the height
/// decreased.
unsafe fn rotate(root: Link) -> (Link, bool) {
    // SAFETY: such a root has a child on its higher side. If that child leans the other way, it has a child there. All
    // of them are nodes of the caller's tree.
    unsafe {
        let heavy = if (*root).rank > 0 { RIGHT } else { LEFT };
        let light = 1 - heavy;
        let child = (*root).child[heavy];
        if (*child).rank != lean(light) {
            (*root).child[heavy] = (*child).child[light];
            (*child).child[light] = root;
            // If the child is balanced (only after a removal), the height stays the same.
            let lower = (*child).rank != 0;
            (*root).rank = if lower { 0 } else { lean(heavy) };
            (*child).rank = if lower { 0 } else { lean(light) };
            return (child, lower);
        }
        let top = (*child).child[light];
        (*root).child[heavy] = (*top).child[light];
        (*child).child[light] = (*top).child[heavy];
        (*top).child[light] = root;
        (*top).child[heavy] = child;
        (*root).rank = if (*top).rank == lean(heavy) { lean(light) } else { 0 };
        (*child).rank = if (*top).rank == lean(light) { lean(heavy) } else { 0 };
        (*top).rank = 0;
        (top, true)
    }
}

/// Restores the balance above a place whose subtree grew by one, or `shrunk` by one.
unsafe fn retrace(root: &mut Link, path: &[Turn], shrunk: bool) {
    for (depth, &Turn { node, side }) in path.iter().enumerate().rev() {
        // SAFETY: the path is one of the caller's tree.
        let now = unsafe {
            (*node).rank += if shrunk { -lean(side) } else { lean(side) };
            (*node).rank
        };
        let changed = if now.abs() < 2 {
            // A subtree grew if its root became unbalanced by one. It shrank if its root became balanced.
            (now == 0) == shrunk
        } else {
            // SAFETY: as above.
            unsafe {
                let (top, lower) = rotate(node);
                *slot(root, &path[..depth]) = top;
                lower == shrunk
            }
        };
        if !changed {
            return;
        }
    }
}

/// Removes the node at the end of a path. The path may be changed.
unsafe fn take(root: &mut Link, path: &mut Path) -> Link {
    // SAFETY: the path is one of the caller's tree, and leads to a node.
    unsafe {
        let node = *slot(root, path);
        let mut out = node;
        if !(*node).child.contains(&ptr::null_mut()) {
            // The least node of the right subtree replaces it.
            path.push(Turn { node, side: RIGHT });
            out = (*node).child[RIGHT];
            while !(*out).child[LEFT].is_null() {
                path.push(Turn { node: out, side: LEFT });
                out = (*out).child[LEFT];
            }
            std::mem::swap(&mut (*node).entry, &mut (*out).entry);
            std::mem::swap(&mut (*node).head, &mut (*out).head);
        }
        let [left, right] = (*out).child;
        *slot(root, path) = if left.is_null() { right } else { left };
        retrace(root, path, true);
        (*out).child = [ptr::null_mut(); 2];
        (*out).rank = 0;
        out
    }
}

/// The path to the end of a tree on one side.
unsafe fn spine(mut at: Link, side: usize) -> Path {
    let mut path = Path::new();
    while !at.is_null() {
        path.push(Turn { node: at, side });
        // SAFETY: links lead to nodes of the caller's tree.
        at = unsafe { (*at).child[side] };
    }
    path
}

// SAFETY: nodes are linked where the paths lead, rotated, and swapped with their neighbours in order. None is dropped.
unsafe impl Balance for Avl {
    unsafe fn insert(root: &mut Link, path: &[Turn], node: Link) {
        // SAFETY: the caller's promise.
        unsafe {
            *slot(root, path) = node;
            retrace(root, path, false);
        }
    }

    unsafe fn remove(root: &mut Link, path: &mut Path) -> Link {
        // SAFETY: the caller's promise.
        unsafe { take(root, path) }
    }

    /// Splits at the root, which goes to the right half. The halves need not be equal.
    unsafe fn split(root: Link) -> (Link, Link) {
        // SAFETY: the caller's promise.
        unsafe {
            let [left, mut right] = std::mem::replace(&mut (*root).child, [ptr::null_mut(); 2]);
            (*root).rank = 0;
            if left.is_null() {
                return (root, right);
            }
            let path = spine(right, LEFT);
            Avl::insert(&mut right, &path, root);
            (left, right)
        }
    }

    /// The least node of the right tree becomes the connecting node. Its place is on the inner edge of the higher tree,
    /// where a subtree has about the height of the lower tree. Its children are that subtree and the lower tree.
    unsafe fn join(left: Link, mut right: Link) -> Link {
        // SAFETY: the caller's promise.
        unsafe {
            let mut path = spine(right, LEFT);
            path.pop();
            let middle = take(&mut right, &mut path);
            let (tall, low) = (height(left), height(right));
            // The side of the higher tree on which the lower one goes, and both trees with their heights.
            let (side, mut root, mut tall, other, low) = if tall >= low {
                (RIGHT, left, tall, right, low)
            } else {
                (LEFT, right, low, left, tall)
            };
            let mut path = Path::new();
            let mut at = root;
            while tall > low + 1 {
                tall -= if (*at).rank == -lean(side) { 2 } else { 1 };
                path.push(Turn { node: at, side });
                at = (*at).child[side];
            }
            (*middle).child[1 - side] = at;
            (*middle).child[side] = other;
            (*middle).rank = lean(side) * (low - tall);
            *slot(&mut root, &path) = middle;
            retrace(&mut root, &path, false);
            root
        }
    }
}
