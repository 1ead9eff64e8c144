//! traces FOLDER: writes the traces of the tests of eviction, a file each, for `scripts/hit-ratios`. A request is a number of 32 bits.

#[path = "../tests/eviction/traces.rs"]
mod traces;

use std::path::PathBuf;

fn main() {
    let folder = PathBuf::from(std::env::args().nth(1).expect("a folder"));
    for (name, requests) in traces::TRACES {
        let bytes: Vec<u8> = requests().into_iter().flat_map(u32::to_le_bytes).collect();
        std::fs::write(folder.join(name), bytes).expect("the folder can be written");
    }
}
