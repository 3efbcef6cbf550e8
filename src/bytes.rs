//! Plain data as bytes, in postcard.

use serde::Serialize;

/// Appends the bytes of `value` to `out`.
#[allow(clippy::expect_used, reason = "writing, not reading: a vector takes all, and no field is of unknown length")]
pub(crate) fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    postcard::serialize_with_flavor(value, Appended(out)).expect("records are plain data");
}

/// A vector that grows by whole fields; the one that comes with postcard grows byte by byte.
struct Appended<'a>(&'a mut Vec<u8>);

impl postcard::ser_flavors::Flavor for Appended<'_> {
    type Output = ();

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.0.push(byte);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}
