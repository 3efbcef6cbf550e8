//! Where the queue in office is reached. Handles keep the line, not the address: the queue behind it may be replaced.

use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message};

use crate::messages::{Called, Enqueue};
use crate::queue::QueueActor;

/// Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Line(Arc<RwLock<Option<End>>>);

/// The far end.
struct End {
    queue: Addr<QueueActor>,
    calls: Calls,
}

/// Calls that store jobs and that one queue has not taken yet. Those are the most by far, so they wait in a list, of which the queue is
/// told when there is something: it takes all of them for the price of one message. Dropped when the line is cut and the queue is gone,
/// they hear that their answers are lost.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<List>);

#[derive(Default)]
struct List {
    calls: Mutex<Vec<Enqueue>>,
    /// How many there are, for one who does not want to wait for the lock.
    count: AtomicUsize,
}

impl Line {
    /// The queue in office; none between two.
    pub(crate) fn queue(&self) -> Option<Addr<QueueActor>> {
        self.with(|end| end.queue.clone())
    }

    /// Sends a message to the queue in office. False when there is none.
    pub(crate) fn send<M>(&self, message: M) -> bool
    where
        M: Message<Result = ()> + Send + 'static,
        QueueActor: Handler<M>,
        <QueueActor as Actor>::Context: ToEnvelope<QueueActor, M>,
    {
        self.with(|end| end.queue.do_send(message)).is_some()
    }

    /// Hands it a call that stores jobs. False when there is none.
    pub(crate) fn enqueue(&self, call: Enqueue) -> bool {
        self.with(|end| end.calls.add(call, || end.queue.do_send(Called))).is_some()
    }

    pub(crate) fn connect(&self, queue: Addr<QueueActor>, calls: Calls) {
        self.set(Some(End { queue, calls }));
    }

    pub(crate) fn cut(&self) {
        self.set(None);
    }

    fn with<T>(&self, act: impl FnOnce(&End) -> T) -> Option<T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).as_ref().map(act)
    }

    fn set(&self, end: Option<End>) {
        let before = mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), end);
        // Callers who hear of it may call again at once.
        drop(before);
    }
}

impl Calls {
    /// All of them, in the order in which they came.
    pub(crate) fn take(&self) -> Vec<Enqueue> {
        let mut calls = self.calls();
        self.0.count.store(0, Ordering::Relaxed);
        // The next ones will be about as many.
        let next = Vec::with_capacity(calls.len());
        mem::replace(&mut *calls, next)
    }

    /// Tells when it is the first. Not before others can get at the list: the queue wakes up at once, and would have to wait for it.
    fn add(&self, call: Enqueue, tell: impl FnOnce()) {
        let mut calls = self.calls();
        calls.push(call);
        let count = calls.len();
        self.0.count.store(count, Ordering::Relaxed);
        drop(calls);
        if count == 1 {
            tell();
        }
    }

    /// How many there are, or were a moment ago.
    pub(crate) fn count(&self) -> usize {
        self.0.count.load(Ordering::Relaxed)
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Enqueue>> {
        self.0.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
