//! Proves that a record comes back from its bytes as it was, and that any other bytes give an error or a record, never a
//! panic, a read beyond the slice, or a reservation that the bytes do not pay for.

use std::time::{Duration, Instant};

use journeyman_core::record::{LARGEST_END, Malformed, decode, encode};
use journeyman_core::{Attempt, Cause, Codec, End, Epoch, Fault, Job, Key, Kind, Op, Options, Packed, Record, Seq, Target, Ticket, Time};
use quickcheck::{Arbitrary, Gen};

use crate::support::{Edgy, Hostile, holds};

const CASES: u64 = 1000;

#[test]
fn a_record_comes_back_as_it_was() {
    holds(CASES, |Any(record): Any| {
        let bytes = bytes_of(&record);
        let mut rest = &bytes[..];
        assert_eq!(decode(&mut rest), Ok(record));
        assert!(rest.is_empty(), "{} bytes left over", rest.len());
    });
}

#[test]
fn records_behind_each_other_come_back_one_by_one() {
    holds(CASES / 10, |records: Vec<Any>| {
        let mut bytes = b"before".to_vec();
        records.iter().for_each(|Any(record)| encode(record, &mut bytes));
        let mut rest = bytes.strip_prefix(b"before").expect("what was there stays");
        for Any(record) in records {
            assert_eq!(decode(&mut rest), Ok(record));
        }
        assert!(rest.is_empty());
    });
}

#[test]
fn a_record_cut_short_is_an_error_at_every_byte() {
    holds(CASES / 10, |Any(record): Any| {
        let bytes = bytes_of(&record);
        for length in lengths(bytes.len()) {
            assert_eq!(decode(&mut &bytes[..length]), Err(Malformed::Fields), "cut at {length} of {}", bytes.len());
        }
    });
}

#[test]
fn a_record_with_one_bit_flipped_is_read_within_its_bytes_or_refused() {
    holds(CASES / 10, |Any(record): Any| {
        let mut bytes = bytes_of(&record);
        for at in lengths(bytes.len()) {
            for bit in 0..8 {
                bytes[at] ^= 1 << bit;
                stays_within(&bytes);
                bytes[at] ^= 1 << bit;
            }
        }
    });
}

#[test]
fn any_bytes_at_all_are_read_within_themselves_or_refused() {
    holds(10 * CASES, |bytes: Vec<u8>| stays_within(&bytes));
    holds(10 * CASES, |(tag, bytes): (u8, Vec<u8>)| stays_within(&[&[tag % 10], &bytes[..]].concat()));
}

#[test]
fn a_tag_of_a_later_release_is_named() {
    holds(CASES, |(tag, rest): (Edgy, Vec<u8>)| {
        let tag = tag.number();
        let bytes = [varint(tag.into()), rest].concat();
        let known = (1..=8).contains(&tag);
        assert_eq!(decode(&mut &bytes[..]) == Err(Malformed::Tag(tag)), !known, "tag {tag}");
    });
}

#[test]
fn a_tag_keeps_its_number() {
    let ticket = Ticket(1);
    let attempt = Attempt(Seq(2));
    let fault = Fault::new(Cause::Failed, "");
    let numbered = [
        (1, Record::Op(Op::Enqueue { now: Time(0), due: Time(0), key: None, job: Packed::from(small()) })),
        (2, Record::Op(Op::Select { ticket })),
        (3, Record::Op(Op::Complete { ticket, attempt, end: End::Done, fault: None })),
        (4, Record::Op(Op::Cancel { ticket })),
        (5, Record::Op(Op::Requeue { ticket, attempt, due: Time(0), fault: fault.clone() })),
        (6, Record::Op(Op::Defer { ticket, attempt, due: Time(0) })),
        (7, Record::Lead { epoch: Epoch(1) }),
        (8, Record::Op(Op::Complete { ticket, attempt, end: End::Spent, fault: Some(fault) })),
    ];
    for (tag, record) in numbered {
        assert_eq!(bytes_of(&record)[0], tag, "{record:?}");
    }
}

/// The bytes of the first release. When this fails, old journals can no longer be read.
#[test]
fn the_bytes_of_an_enqueue_are_those_of_the_first_release() {
    let job = Job {
        kind: Kind::new("mail"),
        version: 2,
        codec: Codec::RAW,
        target: Some(Target::new("smtp")),
        priority: 100,
        options: Options(vec![(7, 300)]),
        meta: vec![("a".into(), "b".into())],
        payload: b"xyz".to_vec(),
    };
    let record = Record::Op(Op::Enqueue { now: Time(1), due: Time(300), key: Some(Key::new("k")), job: Packed::from(job) });
    let expected = [
        &[1, 1, 0xac, 2][..], // the tag, now, due
        &[1, 1, b'k'],        // a key
        &[100],               // the priority
        b"\x04mail\x02\x02",  // the kind, the version, the codec
        b"\x01\x04smtp",      // a target
        &[1, 7, 0xac, 2],     // one option: its tag, its number
        b"\x01\x01a\x01b",    // one pair of meta
        b"\x03xyz",           // the payload
    ];
    assert_eq!(bytes_of(&record), expected.concat());
}

#[test]
fn ends_and_causes_that_this_release_does_not_know() {
    let complete = |end: u8, cause: u8| [&[8, 1, 2, end, cause][..], b"\x01x"].concat();
    let fault = |cause| Some(Fault::new(cause, "x"));
    for (cause, tag) in CAUSES.into_iter().zip(0..).chain([(Cause::Other(5), 5), (Cause::Other(255), 255)]) {
        let known = Op::Complete { ticket: Ticket(1), attempt: Attempt(Seq(2)), end: End::Late, fault: fault(cause) };
        assert_eq!(decode(&mut &complete(4, tag)[..]), Ok(Record::Op(known)), "a cause is for people: a later one is kept");
    }
    assert_eq!(decode(&mut &complete(5, 0)[..]), Err(Malformed::Fields), "an end moves the state: a later one is refused");
}

/// Lengths that are far beyond the bytes behind them. Believed, each would reserve gigabytes or loop for ages.
#[test]
fn a_length_that_the_bytes_do_not_pay_for_is_refused_at_once() {
    let began = Instant::now();
    for length in [1 << 20, 1 << 31, u64::from(u32::MAX), 1 << 40, u64::MAX / 24, u64::MAX] {
        let length = varint(length);
        let start = [1, 0, 0];
        let bombs = [
            [&start[..], &[1], &length].concat(),                     // the key
            [&start[..], &[0, 0], &length].concat(),                  // the kind
            [&start[..], b"\0\0\x01k\0\0\x01", &length].concat(),     // the target
            [&start[..], b"\0\0\x01k\0\0\0", &length].concat(),       // the options
            [&start[..], b"\0\0\x01k\0\0\0\0", &length].concat(),     // the meta
            [&start[..], b"\0\0\x01k\0\0\0\0\x01", &length].concat(), // the name of a pair of meta
            [&start[..], b"\0\0\x01k\0\0\0\0\0", &length].concat(),   // the payload
            [&[8, 1, 1, 0, 0][..], &length].concat(),                 // the text of an end
            [&[5, 1, 1, 0, 0][..], &length].concat(),                 // the text of a failure
        ];
        for bomb in bombs {
            for padding in [0, 1, 4096] {
                let bytes = [&bomb[..], &vec![0xff; padding]].concat();
                assert_eq!(decode(&mut &bytes[..]), Err(Malformed::Fields), "{bomb:02x?}");
            }
        }
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
}

#[test]
fn text_beyond_the_limit_of_a_fault_is_refused() {
    let with = |length: usize| [&[8, 1, 1, 0, 0][..], &varint(length as u64), &vec![b'x'; length]].concat();
    assert!(decode(&mut &with(Fault::TEXT_LIMIT)[..]).is_ok());
    assert_eq!(decode(&mut &with(Fault::TEXT_LIMIT + 1)[..]), Err(Malformed::Fields));
}

#[test]
fn no_record_that_ends_an_attempt_is_larger_than_was_reserved_for_it() {
    let (ticket, attempt, due) = (Ticket(u64::MAX), Attempt(Seq(u64::MAX)), Time(u64::MAX));
    let fault = Fault::new(Cause::Other(255), "x".repeat(2 * Fault::TEXT_LIMIT));
    let mut largest = vec![
        Op::Requeue { ticket, attempt, due, fault: fault.clone() },
        Op::Defer { ticket, attempt, due },
        Op::Cancel { ticket },
        Op::Complete { ticket, attempt, end: End::Late, fault: None },
    ];
    largest.extend(End::ALL.map(|end| Op::Complete { ticket, attempt, end, fault: Some(fault.clone()) }));
    for op in largest {
        let length = bytes_of(&Record::Op(op.clone())).len() as u64;
        assert!(length <= LARGEST_END, "{length} bytes: {op:?}");
    }
    holds(CASES, |Any(record): Any| {
        let ends = !matches!(record, Record::Op(Op::Enqueue { .. }));
        assert!(!ends || bytes_of(&record).len() as u64 <= LARGEST_END);
    });
}

#[test]
fn a_payload_of_a_megabyte_comes_back() {
    let job = Job { payload: (0..1 << 20).map(|n: u32| n.to_le_bytes()[1]).collect(), ..small() };
    let record = Record::Op(Op::Enqueue { now: Time(1), due: Time(2), key: None, job: Packed::from(job) });
    assert_eq!(decode(&mut &bytes_of(&record)[..]), Ok(record));
}

/// Reads a record off the bytes. There may be one: then it has a form that comes back, and no more was read than there is.
fn stays_within(bytes: &[u8]) {
    let mut rest = bytes;
    if let Ok(record) = decode(&mut rest) {
        let read = bytes.len() - rest.len();
        assert!(bytes.ends_with(rest));
        let again = bytes_of(&record);
        // Numbers have longer forms than the one that is written, so not every record has the bytes that it was read from.
        assert!(again.len() <= read, "{} bytes were read, {} say the same", read, again.len());
        assert_eq!(decode(&mut &again[..]), Ok(record));
    }
}

/// All lengths below this one, or a good many of them when it is large.
fn lengths(end: usize) -> impl Iterator<Item = usize> {
    (0..end).filter(move |at| *at < 200 || *at + 50 > end || at.is_multiple_of(61))
}

fn bytes_of(record: &Record) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(record, &mut bytes);
    bytes
}

/// A number as postcard writes it: seven bits a byte, least first, the eighth says that more follow.
fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(number.to_le_bytes()[0] | 0x80);
        number >>= 7;
    }
    bytes.push(number.to_le_bytes()[0]);
    bytes
}

fn small() -> Job {
    let options = Options::default();
    Job { kind: Kind::new(""), version: 0, codec: Codec(0), target: None, priority: 0, options, meta: vec![], payload: vec![] }
}

const CAUSES: [Cause; 5] = [Cause::Failed, Cause::Panicked, Cause::TimedOut, Cause::Crashed, Cause::Interrupted];

/// Any record that this crate can write.
#[derive(Clone, Debug)]
struct Any(Record);

impl Arbitrary for Any {
    fn arbitrary(g: &mut Gen) -> Self {
        let ticket = Ticket(Edgy::arbitrary(g).0);
        let attempt = Attempt(Seq(Edgy::arbitrary(g).0));
        let due = Edgy::arbitrary(g).time();
        let end = *g.choose(&End::ALL).expect("one");
        Self(Record::Op(match u8::arbitrary(g) % 10 {
            0..=3 => Op::Enqueue {
                now: Edgy::arbitrary(g).time(),
                due,
                key: bool::arbitrary(g).then(|| Key::new(Hostile::arbitrary(g).0)),
                job: Packed::from(any_job(g)),
            },
            4 => Op::Select { ticket },
            5 => Op::Complete { ticket, attempt, end, fault: bool::arbitrary(g).then(|| any_fault(g)) },
            6 => Op::Cancel { ticket },
            7 => Op::Requeue { ticket, attempt, due, fault: any_fault(g) },
            8 => Op::Defer { ticket, attempt, due },
            _ => return Self(Record::Lead { epoch: Epoch(Edgy::arbitrary(g).0) }),
        }))
    }
}

fn any_job(g: &mut Gen) -> Job {
    let long = *g.choose(&[0, 0, 0, 100_000]).expect("one");
    Job {
        kind: Kind::new(Hostile::arbitrary(g).0),
        version: u16::arbitrary(g),
        codec: Codec(u8::arbitrary(g)),
        target: bool::arbitrary(g).then(|| Target::new(Hostile::arbitrary(g).0)),
        priority: u8::arbitrary(g),
        options: Options(Vec::<(u32, Edgy)>::arbitrary(g).into_iter().map(|(tag, number)| (tag, number.0)).collect()),
        meta: (0..u8::arbitrary(g) % 4).map(|_| (Hostile::arbitrary(g).0, Hostile::arbitrary(g).0)).collect(),
        payload: [Vec::arbitrary(g), vec![0; long]].concat(),
    }
}

fn any_fault(g: &mut Gen) -> Fault {
    let cause = *g.choose(&CAUSES).expect("one");
    let other = Cause::Other(5 + u8::arbitrary(g) % 251);
    let times = *g.choose(&[1, 1, 20]).expect("one");
    Fault::new(if bool::arbitrary(g) { cause } else { other }, Hostile::arbitrary(g).0.repeat(times))
}
