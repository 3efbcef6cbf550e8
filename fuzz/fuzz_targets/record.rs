//! Records out of any bytes: a record or an error, the same after another round, and a queue that takes them or says why not.
#![no_main]

use journeyman_core::{Queue, Time, record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut rest = input;
    let mut queue = Queue::default();
    while let Ok(found) = record::decode(&mut rest) {
        let mut written = Vec::new();
        record::encode(&found, &mut written);
        let mut again = &written[..];
        assert_eq!(record::decode(&mut again).as_ref(), Ok(&found));
        assert!(again.is_empty());
        let before = queue.clone();
        let now = Time(queue.last().0.wrapping_mul(1 << 57));
        if queue.step(queue.last().next(), now, &found).is_err() {
            assert!(queue == before, "what does not fit changes nothing");
        }
        if rest.is_empty() {
            break;
        }
    }
    queue.check();
});
