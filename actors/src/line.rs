//! Where the queue in office is reached. Handles keep the line, not the address: the queue behind it may be replaced.

use std::sync::{Arc, PoisonError, RwLock};

use actix::Addr;

use crate::queue::QueueActor;

/// Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Line(Arc<RwLock<Option<Addr<QueueActor>>>>);

impl Line {
    /// The queue in office; none between two.
    pub(crate) fn queue(&self) -> Option<Addr<QueueActor>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn connect(&self, queue: Addr<QueueActor>) {
        self.set(Some(queue));
    }

    pub(crate) fn cut(&self) {
        self.set(None);
    }

    fn set(&self, queue: Option<Addr<QueueActor>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = queue;
    }
}
