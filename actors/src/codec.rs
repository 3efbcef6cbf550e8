//! How the fields of a job become bytes and come back, and how the bytes of an older build do. No text in here shows the data:
//! a payload may be private.

use std::fmt;

use journeyman_core::Codec;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How the fields of a job become bytes and come back. See [`Job::CODEC`](crate::Job::CODEC).
///
/// Before a job is stored, its bytes are brought back and written again. A job whose bytes do not come back, or come back as
/// something that is written otherwise, is refused: it would have run as another job than was asked for. Entries of a map or
/// a set may change their places. What both directions leave out, as `#[serde(skip)]` does, nobody can miss. Fields that are nested
/// deeper than 127 levels are refused; raw bytes are their codec's affair.
pub struct PayloadCodec<J> {
    pub(crate) tag: Codec,
    encode: fn(&J) -> Result<Vec<u8>, String>,
    decode: fn(&[u8]) -> Result<J, String>,
    same: Same,
}

/// What shows that a job and what came back are the same.
#[derive(Clone, Copy)]
enum Same {
    /// Their bytes.
    Bytes,
    /// Their bytes have no names and could be those of another value: what they are in JSON as well, where there is that.
    BytesAndJson,
    /// Their bytes, or else what they are in JSON: an encoding that encrypts writes other bytes each time.
    BytesOrJson,
}

impl<J: Serialize + DeserializeOwned> PayloadCodec<J> {
    /// JSON text: people can read stored payloads, and types can grow fields. The default. It has no NaN and no infinity, and
    /// the keys of its maps are strings or numbers.
    #[must_use]
    pub const fn json() -> Self {
        Self { tag: Codec::JSON, encode: to_json, decode: from_json, same: Same::Bytes }
    }

    /// postcard: small and fast. It knows no missing, skipped or untagged fields: a changed type cannot read old payloads.
    ///
    /// Its bytes have no names, so that what came back is compared in JSON as well, where the type can be written so.
    #[must_use]
    pub const fn postcard() -> Self {
        Self { tag: Codec::POSTCARD, encode: to_postcard, decode: from_postcard, same: Same::BytesAndJson }
    }

    /// Bytes as `encode` writes them, for `decode` to bring back. They may be others each time, as those of a cipher are: then
    /// what came back is compared in JSON. The text of an error must not show the data.
    #[must_use]
    pub const fn raw(encode: fn(&J) -> Result<Vec<u8>, String>, decode: fn(&[u8]) -> Result<J, String>) -> Self {
        Self { tag: Codec::RAW, encode, decode, same: Same::BytesOrJson }
    }

    /// The bytes of a job, checked by bringing it back.
    pub(crate) fn encode(&self, job: &J) -> Result<Vec<u8>, String> {
        let bytes = (self.encode)(job)?;
        let json = match self.same {
            Same::BytesAndJson => serde_json::to_vec(job).ok(),
            Same::Bytes | Same::BytesOrJson => None,
        };
        // Before it is brought back: postcard follows any nesting, and a worker's stack may be smaller than the caller's.
        if json.as_deref().is_some_and(|json| depth(json) > DEEPEST) {
            return Err(too_deep());
        }
        let back = (self.decode)(&bytes).map_err(|why| format!("it would not come back: {why}"))?;
        let again = (self.encode)(&back).map_err(|why| format!("it would not come back: written again, {why}"))?;
        let in_bytes = is_same(&bytes, &again);
        let is_same = match self.same {
            Same::Bytes => in_bytes,
            Same::BytesAndJson => in_bytes && is_same_in_json(json, &back),
            Same::BytesOrJson => in_bytes || is_same_in_json(serde_json::to_vec(job).ok(), &back),
        };
        if is_same { Ok(bytes) } else { Err("it would come back as something else".to_owned()) }
    }

    /// The job of stored bytes, by the codec that wrote them.
    pub(crate) fn decode(&self, codec: Codec, bytes: &[u8]) -> Result<J, String> {
        if codec == self.tag { (self.decode)(bytes) } else { read(codec, bytes) }
    }
}

/// A payload as it was stored, for [`Job::upgrade`](crate::Job::upgrade).
#[derive(Clone, Copy)]
pub struct Stored<'a> {
    codec: Codec,
    bytes: &'a [u8],
}

impl<'a> Stored<'a> {
    pub(crate) const fn new(codec: Codec, bytes: &'a [u8]) -> Self {
        Self { codec, bytes }
    }

    /// The bytes.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The fields as they were then, by the codec that wrote them.
    ///
    /// # Errors
    /// [`Unreadable`]; always for bytes of a raw codec, which only [`Stored::by`] can read.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Unreadable> {
        read(self.codec, self.bytes).map_err(Unreadable)
    }

    /// The fields of this type, by the codec that wrote them; by `codec` when it is of the same sort.
    ///
    /// # Errors
    /// [`Unreadable`].
    pub fn by<J: Serialize + DeserializeOwned>(&self, codec: &PayloadCodec<J>) -> Result<J, Unreadable> {
        codec.decode(self.codec, self.bytes).map_err(Unreadable)
    }
}

impl fmt::Debug for Stored<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stored({} bytes)", self.bytes.len())
    }
}

/// Why a stored payload does not come back, without any of its data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

fn read<T: DeserializeOwned>(codec: Codec, bytes: &[u8]) -> Result<T, String> {
    match codec {
        Codec::JSON => from_json(bytes),
        Codec::POSTCARD => from_postcard(bytes),
        other => Err(format!("it was written by codec {}, which this build does not have for it", other.0)),
    }
}

/// Names the data by place only.
fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        let class = match error.classify() {
            serde_json::error::Category::Data => "the JSON does not fit the type",
            // The text of an error in the syntax shows no data, and nothing else tells this one.
            _ if error.to_string().starts_with("recursion limit exceeded") => return too_deep(),
            _ => "it is no JSON",
        };
        format!("{class} (column {})", error.column())
    })
}

fn to_json<J: Serialize>(job: &J) -> Result<Vec<u8>, String> {
    serde_json::to_vec(job).map_err(|_| "the type cannot be written as JSON".to_owned())
}

fn from_postcard<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((job, [])) => Ok(job),
        Ok(_) => Err("bytes are left over behind the postcard value".to_owned()),
        Err(_) => Err("it is no postcard value of the type".to_owned()),
    }
}

fn to_postcard<J: Serialize>(job: &J) -> Result<Vec<u8>, String> {
    postcard::to_allocvec(job).map_err(|_| "the type cannot be written as postcard".to_owned())
}

/// What has no JSON cannot be compared so.
fn is_same_in_json<J: Serialize>(job: Option<Vec<u8>>, back: &J) -> bool {
    let Some(job) = job else { return true };
    serde_json::to_vec(back).is_ok_and(|back| is_same(&job, &back))
}

fn too_deep() -> String {
    format!("it is nested deeper than {DEEPEST} levels")
}

/// How deep the lists and objects of this JSON are nested.
fn depth(json: &[u8]) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    let (mut in_text, mut escaped) = (false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => {
                depth += 1;
                deepest = depth.max(deepest);
            }
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// The same bytes; or the same in another order, as a hash map or a hash set tells its entries in a new one each time: JSON is then
/// compared entry by entry, anything else by how often each byte is there.
fn is_same(one: &[u8], other: &[u8]) -> bool {
    one == other
        || (one.len() == other.len() && counts(one) == counts(other))
            && match (serde_json::from_slice::<Value>(one), serde_json::from_slice::<Value>(other)) {
                (Ok(one), Ok(other)) => unordered(one) == unordered(other),
                _ => true,
            }
}

fn counts(bytes: &[u8]) -> [usize; 256] {
    let mut counts = [0; 256];
    bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
    counts
}

/// The value with the entries of each list in the order of their texts.
fn unordered(value: Value) -> Value {
    match value {
        Value::Array(entries) => {
            let mut entries: Vec<Value> = entries.into_iter().map(unordered).collect();
            entries.sort_by_cached_key(Value::to_string);
            Value::Array(entries)
        }
        Value::Object(fields) => Value::Object(fields.into_iter().map(|(name, value)| (name, unordered(value))).collect()),
        other => other,
    }
}

impl<J> fmt::Debug for PayloadCodec<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PayloadCodec({})", self.tag.0)
    }
}

/// What serde_json reads at most; each level takes a piece of the stack that brings the job back.
const DEEPEST: usize = 127;
