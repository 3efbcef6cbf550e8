//! PoolActor: hands out units as long as it has some, and remembers what is still wanted. The counting is its twin's.

use std::sync::Arc;

use actix::{Actor, Context, Handler, Recipient};
use journeyman_core::pool::Pool;

use crate::clock::Clock;
use crate::messages::{Granted, Returned, Units, Want};

pub(crate) struct PoolActor {
    pool: Pool,
    wanted: u32,
    me: Arc<Recipient<Returned>>,
    queue: Recipient<Granted>,
    clock: Clock,
}

impl PoolActor {
    pub(crate) const fn new(pool: Pool, me: Arc<Recipient<Returned>>, queue: Recipient<Granted>, clock: Clock) -> Self {
        Self { pool, wanted: 0, me, queue, clock }
    }

    fn grant(&mut self) {
        let units = self.wanted.min(self.pool.available());
        if units == 0 {
            return;
        }
        if let Some(permit) = self.pool.reserve(units) {
            self.wanted -= units;
            self.queue.do_send(Granted(Units::new(permit, self.me.clone())));
        }
    }
}

impl Actor for PoolActor {
    type Context = Context<Self>;
}

impl Handler<Want> for PoolActor {
    type Result = ();

    fn handle(&mut self, Want(units): Want, _: &mut Context<Self>) {
        self.clock.stir();
        // Nobody can use more than there is.
        self.wanted = self.wanted.saturating_add(units).min(self.pool.capacity());
        self.grant();
    }
}

impl Handler<Returned> for PoolActor {
    type Result = ();

    fn handle(&mut self, Returned(permit): Returned, _: &mut Context<Self>) {
        self.clock.stir();
        let foreign = self.pool.release(permit);
        debug_assert!(foreign.is_ok(), "a unit comes back to the pool it was taken from");
        self.grant();
    }
}

/// How many units nobody holds; for tests.
#[cfg(feature = "testing")]
#[derive(actix::Message)]
#[rtype(result = "u32")]
pub(crate) struct Available;

#[cfg(feature = "testing")]
impl Handler<Available> for PoolActor {
    type Result = u32;

    fn handle(&mut self, _: Available, _: &mut Context<Self>) -> u32 {
        self.pool.available()
    }
}
