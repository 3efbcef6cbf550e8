//! Who watches the actors. actix lets an actor that panicked disappear in silence; here each runs as a task that is watched,
//! and a death is noticed at once. What follows from it is the keeper's to decide.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::{Actor, Addr, AsyncContext, Context};
use tokio::task::AbortHandle;

use crate::events;
use crate::status::Status;

/// Launches actors and watches them. Clones share what they watch.
#[derive(Clone)]
pub(crate) struct Supervisor {
    status: Arc<Status>,
    /// What it watches may end now.
    is_over: Arc<AtomicBool>,
    watched: Arc<Mutex<Vec<Watched>>>,
}

struct Watched {
    task: AbortHandle,
    #[cfg(feature = "testing")]
    name: &'static str,
    #[cfg(feature = "testing")]
    kill: Option<tokio::sync::oneshot::Sender<()>>,
}

impl Supervisor {
    pub(crate) fn new(status: Arc<Status>) -> Self {
        Self { status, is_over: Arc::default(), watched: Arc::default() }
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
        let life = context.into_future(actor);
        #[cfg(feature = "testing")]
        let (life, kill) = mortal(life);
        let death = Death { supervisor: self.clone(), name, is_natural: false };
        let running = actix_rt::spawn(async move {
            let mut death = death;
            life.await;
            death.is_natural = true;
        });
        let mut watched = self.watched();
        // Breakers come and go, each by a normal end.
        watched.retain(|watched| !watched.task.is_finished());
        watched.push(Watched {
            task: running.abort_handle(),
            #[cfg(feature = "testing")]
            name,
            #[cfg(feature = "testing")]
            kill: Some(kill),
        });
    }

    /// Ends every actor where it stands; that is no failure any more.
    pub(crate) fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.watched().iter().for_each(|watched| watched.task.abort());
    }

    /// Whether every actor is gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.watched().iter().all(|watched| watched.task.is_finished())
    }

    /// Lets every actor of this name panic.
    #[cfg(feature = "testing")]
    pub(crate) fn kill(&self, name: &str) {
        let mut watched = self.watched();
        let kills = watched.iter_mut().filter(|watched| watched.name == name).filter_map(|watched| watched.kill.take());
        // One that has ended meanwhile hears nothing.
        kills.for_each(|kill| kill.send(()).unwrap_or_default());
    }

    /// How many actors of this name live.
    #[cfg(feature = "testing")]
    pub(crate) fn count(&self, name: &str) -> usize {
        self.watched().iter().filter(|watched| watched.name == name && !watched.task.is_finished()).count()
    }

    fn watched(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn died(&self, name: &str) {
        let is_expected = self.is_over.load(Ordering::Relaxed) || self.status.is_closed();
        if !is_expected && self.status.fail(&format!("the {name} actor died")) {
            events::actor_died(name);
        }
    }
}

/// Tells of an end that did not come by itself, on every way: a panic, an abort, a thread that goes.
struct Death {
    supervisor: Supervisor,
    name: &'static str,
    is_natural: bool,
}

impl Drop for Death {
    fn drop(&mut self) {
        if !self.is_natural {
            self.supervisor.died(self.name);
        }
    }
}

/// A life that panics when told.
#[cfg(feature = "testing")]
fn mortal(life: impl Future<Output = ()>) -> (impl Future<Output = ()>, tokio::sync::oneshot::Sender<()>) {
    let (kill, killed) = tokio::sync::oneshot::channel();
    let life = async move {
        let mut life = std::pin::pin!(life);
        tokio::select! {
            () = &mut life => {}
            // Without the word, which goes when nobody watches any more, it lives on.
            Ok(()) = killed => std::panic::resume_unwind(Box::new("told to panic")),
            else => {}
        }
    };
    (life, kill)
}

#[cfg(test)]
mod tests {
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

    fn open() -> (Arc<Status>, Supervisor) {
        let status = Status::new();
        assert!(status.opened(None));
        (status.clone(), Supervisor::new(status))
    }

    async fn gone(supervisor: &Supervisor) {
        while !supervisor.has_ended() {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn an_actor_that_panics_turns_health_red() {
        actix_rt::System::new().block_on(async {
            let (status, supervisor) = open();
            let fragile = supervisor.launch("fragile", |_| Fragile);
            assert!(fragile.send(Knock).await.is_err());
            status.failed().await;
            assert_eq!(status.health(), Health::Red { why: "the fragile actor died".to_owned() });
        });
    }

    #[test]
    fn an_actor_that_ends_by_itself_is_no_failure() {
        actix_rt::System::new().block_on(async {
            let (status, supervisor) = open();
            drop(supervisor.launch("fragile", |_| Fragile));
            gone(&supervisor).await;
            assert_eq!(status.health(), Health::Green);
        });
    }

    #[test]
    fn actors_that_are_told_to_end_are_no_failure() {
        actix_rt::System::new().block_on(async {
            let (status, supervisor) = open();
            let fragile = supervisor.launch("fragile", |_| Fragile);
            supervisor.end();
            gone(&supervisor).await;
            assert!(fragile.send(Knock).await.is_err());
            assert_eq!(status.health(), Health::Green);
        });
    }
}
