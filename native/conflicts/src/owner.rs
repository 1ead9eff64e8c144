//! Names for cache lines: by the source lines of the instructions that use them, which `addr2line` of binutils tells.

use std::collections::HashMap;
use std::fs;
use std::process::Command;

/// What a cache line is that an instruction of this source file writes. The first row that fits one of the inlined functions holds, from
/// the innermost function outwards. Files that fit no row say nothing about the line, such as those of locks.
const OWNERS: [(&str, &str); 23] = [
    ("conflicts/src/table.rs: shared", "planted counter"),
    ("sync/src/stripes.rs", "counters of objects and bytes"),
    ("sync/src/slab/", "slab page"),
    ("sync/src/epoch.rs", "epoch"),
    ("sync/src/thread.rs", "thread slot"),
    ("sync/src/lock/", "table lock"),
    ("sync/src/stat_", "lock and statistic of a base node"),
    ("/linear_hash/", "bucket lock or chain"),
    ("/hash/directory.rs", "directory"),
    ("/hash/resize.rs", "size, sample and bytes"),
    ("/hash/bucket.rs: allocate", "size, sample and bytes"),
    ("/hash/mod.rs: count_sample", "size, sample and bytes"),
    ("/hash/bucket.rs", "bucket block"),
    ("/hash/mod.rs", "bucket head"),
    ("/ca/adapt.rs", "base node"),
    ("/ca/base.rs", "base node"),
    ("/ca/", "leaf"),
    ("/ca_tree/", "base node"),
    ("/sequential/", "node of the tree"),
    ("/papers/src/avl.rs", "table lock"),
    ("table/src/registry/", "registry"),
    ("/in_place.rs", "object changed in place"),
    ("/object/group/", "group of a bag"),
];

/// Names the lines that these instructions write.
pub fn names(addresses: &[u64]) -> HashMap<u64, String> {
    let name = |frames: Frames| {
        let known = frames
            .iter()
            .find_map(|place| OWNERS.iter().find(|(file, _)| place.contains(file)));
        known.map_or_else(|| frames.join(" < "), |(_, owner)| (*owner).to_owned())
    };
    frames(addresses)
        .into_iter()
        .map(|(at, frames)| (at, name(frames)))
        .collect()
}

/// The functions that were inlined at an instruction, the innermost first: each as `file: function`.
type Frames = Vec<String>;

/// The frames of instructions of this program.
fn frames(addresses: &[u64]) -> HashMap<u64, Frames> {
    let program = fs::read_link("/proc/self/exe").expect("the path of this program");
    let maps = fs::read_to_string("/proc/self/maps").expect("the map of this program");
    let first = maps.lines().next().and_then(|line| line.split('-').next());
    let base = u64::from_str_radix(first.expect("a mapping"), 16).expect("an address");
    let mut command = Command::new("addr2line");
    command
        .args(["--addresses", "--inlines", "--functions", "--demangle", "--exe"])
        .arg(program);
    for address in addresses {
        command.arg(format!("{:x}", address.wrapping_sub(base)));
    }
    let output = command.output().expect("addr2line, a tool of binutils");
    let mut found: HashMap<u64, Frames> = HashMap::new();
    let mut at = 0;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        match line.strip_prefix("0x") {
            Some(digits) => at = u64::from_str_radix(digits, 16).expect("an address").wrapping_add(base),
            None => {
                let place = lines.next().unwrap_or("");
                let (file, _) = place.split_once(':').unwrap_or((place, ""));
                found.entry(at).or_default().push(format!("{file}: {line}"));
            }
        }
    }
    found
}
