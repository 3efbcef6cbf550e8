//! What a user's test file looks like: one job by itself, a runner on a virtual clock, a handler without a runner. No test sleeps,
//! listens or leaves a file behind.
//!
//! ```text
//! cargo test --example testing
//! cargo run --example testing     # the same tests, one by one
//! ```

use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use journeyman::testing::{TestRunner, perform};
use journeyman::{
    BreakerState, Circuit, Cx, EnqueueError, Failure, Job, JobEnd, JobResult, JobState, Jobs, Policy, Receipt, Runner, Target,
};
use serde::{Deserialize, Serialize};

/// What is tested: a job that sends an invoice to a customer's mail server.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Invoice {
    to: String,
    cents: u64,
}

impl Job for Invoice {
    type Context = Post;
    type Output = u64;
    const KIND: &'static str = "invoice.send";

    fn target(&self) -> Option<Target> {
        self.to.rsplit_once('@').map(|(_, host)| host.into())
    }

    fn policy() -> Policy {
        Policy::default().attempts(10).base(Duration::from_secs(1)).cap(Duration::from_secs(60))
    }

    async fn run(self, cx: Cx<Post>) -> JobResult<u64> {
        if self.cents == 0 {
            return Err(Failure::permanent("nothing to pay"));
        }
        cx.sleep(Duration::from_secs(2)).await;
        cx.context().send(&self)?;
        Ok(self.cents)
    }
}

/// And a handler that enqueues it, once for each order.
async fn order(jobs: &Jobs, number: u32, to: &str, cents: u64) -> Result<Receipt, EnqueueError> {
    let invoice = Invoice { to: to.to_owned(), cents };
    jobs.enqueue(invoice).key(format!("order-{number}")).delay(Duration::from_secs(60)).await
}

/// Stands in for the mail server. It lies outside the runner, so a crash does not touch it.
#[derive(Clone, Default)]
struct Post(Arc<Mutex<PostState>>);

#[derive(Default)]
struct PostState {
    fails: u32,
    sent: Vec<String>,
}

impl Post {
    fn that_fails(fails: u32) -> Self {
        let post = Self::default();
        post.state().fails = fails;
        post
    }

    fn send(&self, invoice: &Invoice) -> Result<(), String> {
        let mut post = self.state();
        if post.fails > 0 {
            post.fails -= 1;
            return Err("the server does not answer".to_owned());
        }
        post.sent.push(invoice.to.clone());
        Ok(())
    }

    fn sent(&self) -> usize {
        self.state().sent.len()
    }

    fn state(&self) -> MutexGuard<'_, PostState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn runner(post: &Post) -> TestRunner<Post> {
    let post = post.clone();
    let runner = Runner::in_memory().context(move || std::future::ready(Ok::<_, Infallible>(post.clone())));
    let circuit = Circuit::default().threshold(5).cooldown(Duration::from_secs(30));
    runner.circuit(circuit).register::<Invoice>().test().await.expect("an empty disk in memory opens")
}

fn invoice(to: &str, cents: u64) -> Invoice {
    Invoice { to: to.to_owned(), cents }
}

#[cfg_attr(test, actix::test)]
async fn one_run_by_itself() {
    let post = Post::default();
    assert_eq!(perform(invoice("ada@example.org", 100), post.clone()).await.unwrap(), 100);
    assert!(perform(invoice("ada@example.org", 0), post.clone()).await.is_err());
    assert_eq!(post.sent(), 1);
}

#[cfg_attr(test, actix::test)]
async fn a_refusal_ends_the_job_and_a_failure_does_not() {
    let post = Post::that_fails(1);
    let t = runner(&post).await;
    let refused = t.jobs().enqueue(invoice("ada@example.org", 0)).await.unwrap().id();
    let failed = t.jobs().enqueue(invoice("ada@example.org", 100)).await.unwrap().id();
    t.advance(Duration::from_secs(2)).await;
    assert!(matches!(t.jobs().outcome(refused).await.unwrap(), JobEnd::Rejected(fault) if fault.text() == "nothing to pay"));
    let info = t.jobs().get(failed).await.unwrap().expect("it has not ended");
    assert_eq!((info.failures, info.last_fault.unwrap().text()), (1, "the server does not answer"));
    t.advance(Duration::from_secs(3)).await;
    assert_eq!(t.jobs().outcome(failed).await.unwrap(), JobEnd::Done);
}

#[cfg_attr(test, actix::test)]
async fn an_outage_is_waited_for() {
    let post = Post::that_fails(u32::MAX);
    let t = runner(&post).await;
    let jobs = t.jobs();
    jobs.enqueue_all((0..20).map(|n| jobs.enqueue(invoice(&format!("{n}@example.org"), 100)))).await.unwrap();
    t.advance(Duration::from_secs(600)).await;
    let target = jobs.targets().await.unwrap().remove(0);
    assert_ne!(target.breaker, BreakerState::Closed);
    assert_eq!((jobs.stats().pending + jobs.stats().running, post.sent()), (20, 0));
    post.state().fails = 0;
    t.run_until_idle(Duration::from_secs(3600)).await.unwrap();
    assert_eq!((jobs.stats().done, post.sent()), (20, 20));
}

#[cfg_attr(test, actix::test)]
async fn a_crash_in_the_middle_costs_an_attempt_and_no_job() {
    let post = Post::default();
    let mut t = runner(&post).await;
    let id = t.jobs().enqueue(invoice("ada@example.org", 100)).await.unwrap().id();
    t.advance(Duration::from_secs(1)).await;
    assert_eq!(t.jobs().get(id).await.unwrap().unwrap().state, JobState::Running);
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.jobs().get(id).await.unwrap().unwrap().failures, 1);
    t.run_until_idle(Duration::from_secs(60)).await.unwrap();
    assert_eq!((t.jobs().stats().done, post.sent()), (1, 1));
}

#[cfg_attr(test, actix::test)]
async fn a_stop_costs_nothing() {
    let post = Post::default();
    let mut t = runner(&post).await;
    let id = t.jobs().enqueue(invoice("ada@example.org", 100)).await.unwrap().id();
    t.advance(Duration::from_secs(1)).await;
    let report = t.stop_and_reopen(Duration::ZERO).await.unwrap();
    assert_eq!((report.interrupted, report.pending), (1, 1));
    assert_eq!(t.jobs().get(id).await.unwrap().unwrap().failures, 0);
}

#[cfg_attr(test, actix::test)]
async fn a_handler_enqueues_once_for_each_order() {
    let (jobs, captured) = Jobs::capture();
    assert!(order(&jobs, 17, "ada@example.org", 100).await.unwrap().is_new());
    assert!(!order(&jobs, 17, "ada@example.org", 100).await.unwrap().is_new());
    assert_eq!(captured.enqueued::<Invoice>(), [invoice("ada@example.org", 100)]);
}

#[cfg_attr(test, actix::test)]
async fn what_a_handler_enqueued_waits_for_its_time() {
    let t = runner(&Post::default()).await;
    order(&t.jobs(), 17, "ada@example.org", 100).await.unwrap();
    t.advance(Duration::from_secs(59)).await;
    assert_eq!(t.enqueued::<Invoice>().await, [invoice("ada@example.org", 100)]);
    t.advance(Duration::from_secs(1)).await;
    assert!(t.enqueued::<Invoice>().await.is_empty());
}

/// As the test harness does, with a line for each.
#[cfg(not(test))]
#[actix::main]
async fn main() {
    macro_rules! run {
        ($($test:ident)*) => { $($test().await; println!("{}: ok", stringify!($test).replace('_', " "));)* };
    }
    run! {
        one_run_by_itself
        a_refusal_ends_the_job_and_a_failure_does_not
        an_outage_is_waited_for
        a_crash_in_the_middle_costs_an_attempt_and_no_job
        a_stop_costs_nothing
        a_handler_enqueues_once_for_each_order
        what_a_handler_enqueued_waits_for_its_time
    }
}
