//! No byte that is not what it was makes the program panic, or touch a real directory. `salvaging.rs` does the same to many more in memory.

use super::{all_of, flip, tool, used};
use crate::kit::kinds;
use crate::support::figures::held;

/// Snapshots in sled among them, for some of the bytes.
#[test]
fn no_flipped_byte_of_a_real_directory_makes_the_program_panic_or_touch_it() {
    let mut tries = 0;
    for kind in kinds() {
        let used = used(kind, 1, 3);
        let before = all_of(used.path());
        for path in crate::kit::below(used.path()) {
            let length = before[&path].0.len();
            for at in (0..length).step_by((length / 12).max(1)) {
                flip(&path, at);
                let elsewhere = tempfile::tempdir().unwrap();
                let new = elsewhere.path().join("new");
                for (command, more) in [("verify", &[][..]), ("dump", &["--payloads"]), ("salvage", &["--to", new.to_str().unwrap()])] {
                    let answer = tool(used.path(), command, more);
                    assert!(answer.status <= 1, "{command}, byte {at} of {}: {answer:?}", path.display());
                    assert!(answer.err.lines().count() < 4, "{answer:?}");
                }
                if new.exists() {
                    assert_eq!(tool(&new, "verify", &[]).status, 0, "byte {at} of {}", path.display());
                }
                flip(&path, at);
                tries += 1;
            }
        }
    }
    held("F8", tries, "bytes flipped on a real directory under the program");
}
