//! Plain data as bytes, in postcard.

use serde::Serialize;

/// Appends the bytes of `value` to `out`.
#[allow(clippy::expect_used, reason = "writing, not reading: a vector takes all, and no field is of unknown length")]
pub(crate) fn write(out: &mut Vec<u8>, value: &impl Serialize) {
    postcard::serialize_with_flavor(value, Appended(out)).expect("records are plain data");
}

/// Appends a number, seven bits to a byte, the lowest first: as postcard writes it, and without a look at each field's type.
pub(crate) fn number(out: &mut Vec<u8>, number: u64) {
    let mut left = number;
    while left > 0x7f {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Appends a text: its length, then its bytes.
pub(crate) fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

/// Appends a text that may not be there.
pub(crate) fn optional(out: &mut Vec<u8>, optional: Option<&str>) {
    out.push(optional.is_some().into());
    if let Some(there) = optional {
        text(out, there);
    }
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
