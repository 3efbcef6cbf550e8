//! Who watches the actors. actix lets an actor that panicked disappear in silence; here each runs as a task that is watched,
//! and a panic ends the runner at once and loudly.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::{Actor, Addr, AsyncContext, Context, Recipient};
use tokio::task::AbortHandle;

use crate::events;
use crate::messages::Halt;
use crate::status::Status;

/// Launches actors and watches them. Clones share what they watch.
#[derive(Clone)]
pub(crate) struct Supervisor {
    status: Arc<Status>,
    halt: Recipient<Halt>,
    watched: Arc<Mutex<Vec<(&'static str, AbortHandle)>>>,
}

impl Supervisor {
    pub(crate) fn new(status: Arc<Status>, halt: Recipient<Halt>) -> Self {
        Self { status, halt, watched: Arc::default() }
    }

    /// Makes an actor that needs its own address, and starts it on this arbiter.
    pub(crate) fn launch<A: Actor<Context = Context<A>>>(&self, name: &'static str, make: impl FnOnce(Addr<A>) -> A) -> Addr<A> {
        let context = Context::new();
        let address = context.address();
        self.start(name, context, make(address.clone()));
        address
    }

    /// Starts an actor whose context was made before.
    pub(crate) fn start<A: Actor<Context = Context<A>>>(&self, name: &'static str, context: Context<A>, actor: A) {
        let running = actix_rt::spawn(context.into_future(actor));
        let mut watched = self.watched();
        // Breakers come and go, each by a normal end.
        watched.retain(|(_, task)| !task.is_finished());
        watched.push((name, running.abort_handle()));
        let this = self.clone();
        actix_rt::spawn(async move {
            if running.await.is_err() {
                this.died(name);
            }
        });
    }

    /// Ends every actor of this name where it stands.
    #[cfg(feature = "testing")]
    pub(crate) fn kill(&self, name: &str) {
        self.watched().iter().filter(|(watched, _)| *watched == name).for_each(|(_, task)| task.abort());
    }

    /// How many actors of this name live.
    #[cfg(feature = "testing")]
    pub(crate) fn count(&self, name: &str) -> usize {
        self.watched().iter().filter(|(watched, task)| *watched == name && !task.is_finished()).count()
    }

    /// Ends every actor where it stands, as a crash does.
    #[cfg(feature = "testing")]
    pub(crate) fn kill_all(&self) {
        self.watched().drain(..).for_each(|(_, task)| task.abort());
    }

    fn watched(&self) -> MutexGuard<'_, Vec<(&'static str, AbortHandle)>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn died(&self, name: &str) {
        if !self.status.closed.load(Ordering::Relaxed) && self.status.fail(&format!("the {name} actor died")) {
            events::actor_died(name);
        }
        self.halt.do_send(Halt);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use actix::{Handler, Message};

    use super::*;
    use crate::status::Health;

    struct Fragile;

    #[derive(Message)]
    #[rtype(result = "()")]
    struct Knock;

    impl Actor for Fragile {
        type Context = Context<Self>;
    }

    impl Handler<Knock> for Fragile {
        type Result = ();

        fn handle(&mut self, _: Knock, _: &mut Context<Self>) {
            panic!("it was fragile");
        }
    }

    struct Listener(Arc<AtomicBool>);

    impl Actor for Listener {
        type Context = Context<Self>;
    }

    impl Handler<Halt> for Listener {
        type Result = ();

        fn handle(&mut self, _: Halt, _: &mut Context<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_actor_that_panics_turns_health_red_and_halts_the_queue() {
        actix_rt::System::new().block_on(async {
            let halted = Arc::new(AtomicBool::new(false));
            let status = Status::new(0, 0, journeyman_core::queue::Ends::default(), 0);
            let supervisor = Supervisor::new(status.clone(), Listener(halted.clone()).start().recipient());
            let fragile = supervisor.launch("fragile", |_| Fragile);
            assert!(fragile.send(Knock).await.is_err());
            status.failure().await;
            while !halted.load(Ordering::Relaxed) {
                tokio::task::yield_now().await;
            }
            assert_eq!(status.health(), Health::Red { why: "the fragile actor died".to_owned() });
        });
    }

    #[test]
    fn an_actor_that_ends_by_itself_is_no_failure() {
        actix_rt::System::new().block_on(async {
            let status = Status::new(0, 0, journeyman_core::queue::Ends::default(), 0);
            let supervisor = Supervisor::new(status.clone(), Listener(Arc::default()).start().recipient());
            drop(supervisor.launch("fragile", |_| Fragile));
            while supervisor.watched().iter().any(|(_, task)| !task.is_finished()) {
                tokio::task::yield_now().await;
            }
            assert_eq!(status.health(), Health::Green);
        });
    }
}
