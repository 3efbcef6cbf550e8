//! Who watches the actors. actix lets an actor that panicked disappear in silence; here each runs as a task that is watched,
//! and a panic ends the runner at once and loudly.

use std::sync::{Arc, Mutex, PoisonError};

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
    tasks: Arc<Mutex<Vec<AbortHandle>>>,
}

impl Supervisor {
    pub(crate) fn new(status: Arc<Status>, halt: Recipient<Halt>) -> Self {
        Self { status, halt, tasks: Arc::default() }
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
        self.keep(running.abort_handle());
        let this = self.clone();
        actix_rt::spawn(async move {
            if running.await.is_err_and(|end| end.is_panic()) {
                this.died(name);
            }
        });
    }

    /// Ends every actor where it stands, as a crash does.
    #[cfg(feature = "testing")]
    pub(crate) fn abort_all(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.drain(..).for_each(|task| task.abort());
    }

    fn keep(&self, task: AbortHandle) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        // Breakers come and go.
        tasks.retain(|task| !task.is_finished());
        tasks.push(task);
    }

    fn died(&self, name: &str) {
        if self.status.fail(&format!("the {name} actor panicked")) {
            events::actor_died(name);
        }
        self.halt.do_send(Halt);
    }
}
