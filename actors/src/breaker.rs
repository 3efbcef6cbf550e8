//! BreakerActor: one per live target, the last word on whether an attempt goes. When its breaker moves, it tells the queue,
//! so that the queue holds a whole lane instead of asking for every ticket.

use actix::{Actor, AsyncContext, Context, Handler, Recipient};
use journeyman_core::Target;
use journeyman_core::breaker::{Breaker, Circuit, Position};

use crate::clock::Clock;
use crate::events;
use crate::ledger::Ended;
use crate::messages::{Admitted, BreakerMoved, Leave, Selected, Verdict};
use crate::worker::Workers;

pub(crate) struct BreakerActor {
    target: Target,
    breaker: Breaker,
    workers: Workers,
    queue: Recipient<BreakerMoved>,
    clock: Clock,
}

impl BreakerActor {
    pub(crate) const fn new(target: Target, circuit: Circuit, workers: Workers, queue: Recipient<BreakerMoved>, clock: Clock) -> Self {
        Self { target, breaker: Breaker::new(circuit), workers, queue, clock }
    }

    fn tell(&self) {
        let moved = BreakerMoved { target: self.target.clone(), position: self.breaker.position(), openings: self.breaker.openings() };
        self.queue.do_send(moved);
    }
}

impl Actor for BreakerActor {
    type Context = Context<Self>;
}

impl Handler<Selected> for BreakerActor {
    type Result = ();

    fn handle(&mut self, Selected { flight, budget, now }: Selected, ctx: &mut Context<Self>) {
        self.clock.stir();
        if let Err(end) = budget.admit(now) {
            return flight.finish(Ended::Denied(end));
        }
        match self.breaker.admit(self.clock.now().steady) {
            Ok(pass) => {
                // Not kept as a field: an actor that holds its own address never ends.
                let leave = Some(Leave::new(pass, ctx.address().recipient()));
                self.workers.send(vec![Admitted { flight, leave }]);
            }
            Err(refused) => flight.finish(Ended::Open { until: refused.until }),
        }
    }
}

impl Handler<Verdict> for BreakerActor {
    type Result = ();

    fn handle(&mut self, Verdict { pass, verdict }: Verdict, _: &mut Context<Self>) {
        self.clock.stir();
        let moved = self.breaker.settle(pass, verdict, self.clock.now().steady);
        if moved {
            events::breaker_moved(&self.target, self.breaker.position(), self.breaker.openings());
        }
        // Half-open and not moved: a probe came back without a verdict, and another may go.
        if moved || self.breaker.position() == Position::HalfOpen {
            self.tell();
        }
    }
}
