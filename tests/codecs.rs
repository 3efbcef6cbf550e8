//! What the three codecs bring back. Proves that a payload that would not come back, or would come back as something else,
//! is refused before it is stored, without a trace of its data; and that everything else comes back as it was.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU8, Ordering};

use journeyman::{Cx, EnqueueError, Job, JobResult, PayloadCodec, Runner};
use serde::{Deserialize, Serialize};

macro_rules! job {
    ($(#[$attribute:meta])* $name:ident, $codec:expr, { $($(#[$of_field:meta])* $field:ident: $type:ty),* }) => {
        #[derive(Serialize, Deserialize)]
        $(#[$attribute])*
        struct $name { $($(#[$of_field])* $field: $type),* }

        impl Job for $name {
            type Context = ();
            type Output = ();
            const KIND: &'static str = stringify!($name);
            const CODEC: PayloadCodec<Self> = $codec;

            async fn run(self, _: Cx<()>) -> JobResult<()> {
                Ok(())
            }
        }
    };
}

/// What becomes of a job of this type at the door.
async fn stored<J: Job<Context = ()>>(job: J) -> Result<(), String> {
    let t = Runner::in_memory().register::<J>().test().await.unwrap();
    let stored = t.jobs().enqueue(job).await;
    t.settle().await;
    match stored {
        Ok(_) => {
            assert_eq!(t.jobs().stats().done, 1, "what is stored runs");
            Ok(())
        }
        Err(EnqueueError::NotEncodable { why, .. }) => Err(why),
        Err(other) => panic!("{other}"),
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Either {
    Number(u64),
    Text(String),
}

job!(Numbers, PayloadCodec::json(), { single: f32, double: f64 });
job!(PackedNumbers, PayloadCodec::postcard(), { double: f64 });
job!(Points, PayloadCodec::json(), { of: HashMap<(i32, i32), u8> });
job!(PackedPoints, PayloadCodec::postcard(), { of: HashMap<(i32, i32), u8>, seen: HashSet<String> });
job!(Names, PayloadCodec::json(), { of: HashMap<u32, String>, seen: HashSet<String> });
job!(Untagged, PayloadCodec::json(), { it: Either });
job!(PackedUntagged, PayloadCodec::postcard(), { it: Either });
job!(Sparse, PayloadCodec::json(), {
    #[serde(skip_serializing_if = "Option::is_none", default)] a: Option<u8>,
    b: Option<u8>
});
job!(PackedSparse, PayloadCodec::postcard(), {
    #[serde(skip_serializing_if = "Option::is_none", default)] a: Option<u8>,
    b: Option<u8>
});
job!(PackedZero, PayloadCodec::postcard(), {
    #[serde(skip_serializing_if = "is_zero", default)] a: u8,
    b: Vec<u8>
});
job!(Lossy, PayloadCodec::json(), { #[serde(serialize_with = "without_its_sign")] n: i64 });
job!(PackedWide, PayloadCodec::postcard(), { n: u128, text: String, of: Vec<Option<(char, bool)>> });

fn is_zero(n: &u8) -> bool {
    *n == 0
}

fn without_its_sign<S: serde::Serializer>(n: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_i64(n.abs())
}

#[actix::test]
async fn json_refuses_what_it_cannot_say() {
    for odd in [f64::NAN, f64::INFINITY] {
        let why = stored(Numbers { single: 0.0, double: odd }).await.unwrap_err();
        assert!(why.starts_with("it would not come back: the JSON does not fit the type"), "{why}");
    }
    let why = stored(Points { of: [((1, 2), 3)].into() }).await.unwrap_err();
    assert_eq!(why, "the type cannot be written as JSON", "its maps have strings and numbers as keys");
}

#[actix::test]
async fn json_brings_back_each_float_as_it_was() {
    let mut dice = fastrand::Rng::with_seed(7);
    let t = Runner::in_memory().register::<Numbers>().test().await.unwrap();
    for _ in 0..2_000 {
        let (single, double) = (f32::from_bits(dice.u32(..)), f64::from_bits(dice.u64(..)));
        if single.is_finite() && double.is_finite() {
            let numbers = Numbers { single, double };
            assert!(t.jobs().enqueue(numbers).await.is_ok(), "{single:e} {double:e}");
        }
    }
}

#[actix::test]
async fn maps_and_sets_come_back_in_whatever_order() {
    for round in 0..20 {
        let seen: HashSet<_> = (0..50).map(|n| format!("{round} {n}")).collect();
        assert_eq!(stored(Names { of: (0..50).map(|n| (n, n.to_string())).collect(), seen: seen.clone() }).await, Ok(()));
        assert_eq!(stored(PackedPoints { of: (0..50).map(|n| ((n, -n), 1)).collect(), seen }).await, Ok(()));
    }
}

#[actix::test]
async fn postcard_refuses_fields_that_are_skipped_or_untagged() {
    assert_eq!(stored(PackedSparse { a: Some(1), b: None }).await, Ok(()), "nothing is skipped");
    assert!(stored(PackedSparse { a: None, b: Some(1) }).await.is_err());
    let why = stored(PackedZero { a: 0, b: vec![0] }).await.unwrap_err();
    assert_eq!(why, "it would come back as something else", "its bytes are those of another value");
    assert!(stored(PackedUntagged { it: Either::Number(1) }).await.is_err());
    assert!(stored(PackedUntagged { it: Either::Text("canary".to_owned()) }).await.is_err_and(|why| !why.contains("canary")));
}

#[actix::test]
async fn json_takes_fields_that_are_skipped_or_untagged() {
    assert_eq!(stored(Sparse { a: None, b: Some(1) }).await, Ok(()));
    assert_eq!(stored(Untagged { it: Either::Number(1) }).await, Ok(()));
    assert_eq!(stored(Untagged { it: Either::Text("x".to_owned()) }).await, Ok(()));
}

#[actix::test]
async fn postcard_takes_what_json_cannot_say() {
    assert_eq!(stored(PackedNumbers { double: f64::INFINITY }).await, Ok(()));
    assert_eq!(stored(PackedNumbers { double: f64::NAN }).await, Ok(()));
    assert_eq!(stored(PackedWide { n: u128::MAX, text: "é".to_owned(), of: vec![None, Some(('x', true))] }).await, Ok(()));
}

/// What is lost on the way out is as lost as the job itself would be: nobody can see it in what is written.
#[actix::test]
async fn what_is_not_written_is_not_missed() {
    assert_eq!(stored(Lossy { n: -5 }).await, Ok(()), "5 comes back, and 5 is what was written");
}

macro_rules! raw {
    ($name:ident, $encode:expr, $decode:expr) => {
        #[derive(Serialize, Deserialize)]
        struct $name(Vec<u8>);

        impl Job for $name {
            type Context = ();
            type Output = ();
            const KIND: &'static str = stringify!($name);
            const CODEC: PayloadCodec<Self> = PayloadCodec::raw($encode, $decode);

            async fn run(self, _: Cx<()>) -> JobResult<()> {
                Ok(())
            }
        }
    };
}

raw!(Faithful, |it| Ok(it.0.clone()), |bytes| Ok(Self(bytes.to_vec())));
raw!(Cut, |it| Ok(it.0.clone()), |bytes| Ok(Self(bytes.iter().copied().take(2).collect())));
raw!(Salted, |it| Ok(salted(&it.0)), |bytes| Ok(Self(bytes.iter().skip(1).copied().collect())));
raw!(SaltedAndCut, |it| Ok(salted(&it.0)), |bytes| Ok(Self(bytes.iter().skip(2).copied().collect())));
raw!(Picky, |it| if it.0.is_empty() { Err("it is empty".to_owned()) } else { Ok(it.0.clone()) }, |_| Ok(Self(Vec::new())));

/// Begins with another byte each time, as a cipher does.
fn salted(bytes: &[u8]) -> Vec<u8> {
    static SALT: AtomicU8 = AtomicU8::new(1);
    [&[SALT.fetch_add(1, Ordering::Relaxed)], bytes].concat()
}

#[actix::test]
async fn raw_bytes_may_be_others_each_time_when_the_job_is_the_same() {
    assert_eq!(stored(Salted(vec![7, 7])).await, Ok(()));
    assert_eq!(stored(SaltedAndCut(vec![7, 7])).await, Err("it would come back as something else".to_owned()));
}

#[actix::test]
async fn raw_bytes_are_brought_back_and_written_again_too() {
    assert_eq!(stored(Faithful(vec![0, 255, 1])).await, Ok(()));
    assert_eq!(stored(Cut(vec![1, 2])).await, Ok(()));
    assert_eq!(stored(Cut(vec![1, 2, 3])).await, Err("it would come back as something else".to_owned()));
    assert_eq!(stored(Picky(vec![1])).await, Err("it would not come back: written again, it is empty".to_owned()));
}

/// Comes back with its two fields in each other's place.
#[derive(Debug, Clone)]
struct Swapped {
    a: u32,
    b: u32,
}

impl Serialize for Swapped {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        std::collections::BTreeMap::from([("a", self.a), ("b", self.b)]).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Swapped {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let fields = std::collections::BTreeMap::<String, u32>::deserialize(deserializer)?;
        Ok(Self { a: fields["b"], b: fields["a"] })
    }
}

impl Job for Swapped {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "swapped";

    async fn run(self, _: Cx<()>) -> JobResult<()> {
        Ok(())
    }
}

#[actix::test]
async fn values_that_change_places_are_another_job() {
    let t = Runner::in_memory().register::<Swapped>().test().await.unwrap();
    assert!(t.jobs().enqueue(Swapped { a: 12, b: 12 }).await.is_ok());
    let refused = t.jobs().enqueue(Swapped { a: 12, b: 21 }).await;
    assert!(matches!(refused, Err(EnqueueError::NotEncodable { .. })), "{refused:?}");
}
