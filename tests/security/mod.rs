//! The security list: a test for each row that is about this release, named by its number. What others show in full is named here.
//!
//! | row | rule | shown by |
//! |---|---|---|
//! | S1 | no `unsafe` in these crates | `supply.rs` |
//! | S2 | sizes are judged before anything is decoded, decoders answer to any bytes, nesting has a bound | `bounds.rs`; `codecs.rs`, `record_codec.rs`; the fuzzing of the decoders |
//! | S3 | a job's type is data, looked up among what is registered, and never code | `bounds.rs`; `held.rs` |
//! | S4 | everything that a caller can pile up has a bound, and a typed refusal | `bounds.rs` here and beside; `footprint` |
//! | S5 | directory and files are their owner's alone, nothing is followed out of the directory | `places.rs`; `file_disk.rs` |
//! | S6 | no payload, key, meta value or fault text in a log line, metric, event, error or debug output | `secrets.rs` |
//! | S7 | checksums find accidents, not forgeries, and the documents say so | `supply.rs` |
//! | S14 | a key is its whole text, whatever hashes say, and has a length | `bounds.rs` |
//! | S15 | dependencies: locked, from one registry, with known licences and advisories | `supply.rs` |
//! | S16 | arithmetic that overflows is noticed, decoders do not index, a program that aborts on panic is refused | `supply.rs`, `tidy.rs` |
//! | S17 | a copy of a stopped directory is a backup, and a restored one leads under a new epoch | `backup.rs` |
//! | S18 | a job that kills its process ends when its attempts are spent | `bounds.rs`; the kills of the real program |
//!
//! S8 to S13 are about an HTTP panel and workers that call out, which do not exist here.

mod backup;
mod bounds;
mod places;
mod secrets;
mod supply;
