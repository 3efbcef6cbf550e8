//! Keys of ended tickets whose windows are over: they do not pile up, and are taken anew whether they were forgotten or not.

use journeyman_core::{Key, Op, Packed, Queue, Record, Span, Ticket, Time};

use crate::support::job;

#[test]
fn keys_of_ended_tickets_do_not_pile_up() {
    let mut queue = Queue::default();
    for n in 0..1000 {
        let now = Time(n * 10);
        let enqueue = Op::Enqueue { now, due: now, key: Some(Key::new(n.to_string())), job: Packed::from(job(1, Some(Span(5)))) };
        queue.step(queue.last().next(), now, &Record::Op(enqueue)).expect("a new key");
        queue.step(queue.last().next(), now, &Record::Op(Op::Cancel { ticket: Ticket(n + 1) })).expect("it lives");
        assert_eq!(queue.keys(), 1);
    }
}

#[test]
fn a_key_whose_window_is_over_is_taken_anew_whether_it_was_forgotten_or_not() {
    for n in [0, 63, 64, 199] {
        let mut queue = Queue::default();
        let mut add = |op: Op, now| queue.step(queue.last().next(), now, &Record::Op(op)).expect("it fits");
        let enqueue = |n: u64, now| {
            let key = Some(Key::new(format!("key {n:03}")));
            Op::Enqueue { now, due: now, key, job: Packed::from(job(1, Some(Span(5)))) }
        };
        for n in 0..200 {
            add(enqueue(n, Time(0)), Time(0));
            add(Op::Cancel { ticket: Ticket(n + 1) }, Time(0));
        }
        // Some of the windows that are over are forgotten with each new key, the first first.
        add(enqueue(n, Time(10)), Time(10));
        queue.check();
        let key = Key::new(format!("key {n:03}"));
        assert_eq!((queue.holder(&key, Time(10)), queue.keys()), (Some(Ticket(201)), if n < 64 { 137 } else { 136 }), "{n}");
        let op = Op::Cancel { ticket: Ticket(201) };
        queue.step(queue.last().next(), Time(20), &Record::Op(op)).expect("it lives");
        queue.check();
        assert_eq!(queue.holder(&key, Time(21)), Some(Ticket(201)), "its own window counts");
    }
}
