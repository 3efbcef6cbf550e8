//! The one place that starts threads and waits for them to end. An arbiter that does not end, as a job of it never comes to an await
//! or its disk hangs, is waited for no longer than told.

use std::future::Future;
use std::thread::{self, JoinHandle};

use actix_rt::{Arbiter, ArbiterHandle, System};
use tokio::sync::oneshot;

/// A thread with an actix system of its own.
pub(crate) struct Host {
    ended: oneshot::Receiver<()>,
    thread: JoinHandle<()>,
}

impl Host {
    /// Starts the thread, and on it `life`.
    pub(crate) fn start<F: Future<Output = ()>>(life: impl FnOnce() -> F + Send + 'static) -> std::io::Result<Self> {
        let (tell, ended) = oneshot::channel();
        let run = move || {
            let system = System::new();
            system.block_on(life());
            drop(system);
            // Whoever waits for the end may have gone.
            let _ = tell.send(());
        };
        let thread = thread::Builder::new().name("journeyman".to_owned()).spawn(run)?;
        Ok(Self { ended, thread })
    }

    /// Waits until it has ended.
    pub(crate) async fn join(self) {
        // An error says that it panicked: it has ended all the same.
        let _ = self.ended.await;
        let _ = self.thread.join();
    }
}

/// Ends the thread of an arbiter and waits for it, as long as `patience` lasts. Answers whether it has ended.
pub(crate) async fn stop(arbiter: Arbiter, patience: impl Future<Output = ()>) -> bool {
    arbiter.stop();
    let (tell, ended) = oneshot::channel();
    let join = move || tell.send(arbiter.join().is_ok()).unwrap_or_default();
    if thread::Builder::new().name("journeyman-join".to_owned()).spawn(join).is_err() {
        // Without a thread to wait on, it is not known when it ends.
        return false;
    }
    tokio::select! {
        _ = ended => true,
        () = patience => false,
    }
}

/// Runs `make` on the thread of an arbiter. None when it panics, or when the thread is gone.
pub(crate) async fn on<T, F>(arbiter: &ArbiterHandle, make: impl FnOnce() -> F + Send + 'static) -> Option<T>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    let (tell, told) = oneshot::channel();
    arbiter.spawn_fn(move || {
        let made = make();
        actix_rt::spawn(async move {
            // Whoever asked may have gone.
            let _ = tell.send(made.await);
        });
    });
    told.await.ok()
}

/// Lets whoever else wants this thread's processor have it first.
pub(crate) fn yield_processor() {
    thread::yield_now();
}
