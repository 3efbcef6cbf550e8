//! Frames out of any bytes: whatever is read as whole is what would be written, and whoever looks for a later frame finds each.
#![no_main]

use journeyman_core::Seq;
use journeyman_core::journal::Salt;
use journeyman_core::journal::fuzzing::{Whole, encode, is_later_frame_behind, length, read};
use journeyman_fuzz::{Mode, mend_frames};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let Some((mode, rest)) = input.split_first() else { return };
    let Some((salt, bytes)) = rest.split_first_chunk::<16>() else { return };
    let mut bytes = bytes.to_vec();
    let mending = Mode(*mode).mending();
    if mending > 0 {
        mend_frames(&mut bytes, *salt, (mending > 1).then_some(0), mending > 2);
    }
    let salt = Salt(u128::from_le_bytes(*salt));
    let (mut at, mut last) = (0, Seq(0));
    while let Some(frame) = read(salt, &bytes, at) {
        assert!(at < frame.end && frame.end <= bytes.len());
        assert_eq!(length(salt, &bytes, at), Some(frame.end - at));
        let (written, checksum) = encode(salt, frame.batch.as_ref(), frame.previous);
        let Whole { batch, previous, .. } = &frame;
        let again = Whole { batch: batch.clone(), previous: *previous, checksum, end: written.len() };
        assert_eq!(read(salt, &written, 0), Some(again));
        last = batch.as_ref().map_or(last, |batch| batch.last());
        at = frame.end;
    }
    let proves = |at: usize| read(salt, &bytes, at).is_some_and(|frame| frame.batch.is_none_or(|batch| batch.first > last.next()));
    for from in [0, at, at + 1] {
        assert_eq!(is_later_frame_behind(salt, &bytes, from, last), (from..bytes.len()).any(proves));
    }
});
