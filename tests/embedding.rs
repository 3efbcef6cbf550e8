//! A real runner, on real directories, threads and time, in each kind of host: an actix-web server, a multi-threaded tokio
//! runtime, an axum server, a thread without any. And what only real threads can show: blocking sections that outlive their attempt.

use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use actix_web::{App, HttpResponse, HttpServer, web};
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use journeyman::{Cancelled, Cause, Cx, Health, Job, JobEnd, JobResult, JobState, Jobs, Policy, Runner};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::UnboundedSender;

const SECOND: Duration = Duration::from_secs(1);

/// Says its name to whoever listens.
#[derive(Serialize, Deserialize)]
struct Hello(String);

impl Job for Hello {
    type Context = UnboundedSender<String>;
    type Output = ();
    const KIND: &'static str = "hello";

    async fn run(self, cx: Cx<Self::Context>) -> JobResult<()> {
        cx.context().send(self.0)?;
        Ok(())
    }
}

async fn hello(dir: &std::path::Path) -> (Runner, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let (tell, told) = tokio::sync::mpsc::unbounded_channel();
    let runner = Runner::open(dir.join("jobs")).context(move || std::future::ready(Ok::<_, std::convert::Infallible>(tell.clone())));
    (runner.register::<Hello>().start().await.unwrap(), told)
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_multi_threaded_tokio_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let (runner, mut told) = hello(dir.path()).await;
    let jobs = runner.jobs();
    let call = tokio::spawn(async move { jobs.enqueue(Hello("tokio".to_owned())).await });
    assert!(call.await.unwrap().unwrap().is_new());
    assert_eq!(told.recv().await.unwrap(), "tokio");
    let report = runner.run_until(std::future::ready(()), SECOND).await.unwrap();
    assert_eq!(report.pending, 0);
}

#[actix::test]
async fn in_an_actix_web_server_whose_handlers_enqueue() {
    let dir = tempfile::tempdir().unwrap();
    let (runner, mut told) = hello(dir.path()).await;
    let jobs = runner.jobs();
    async fn accept(jobs: web::Data<Jobs>, name: String) -> actix_web::Result<HttpResponse> {
        let receipt = jobs.enqueue(Hello(name)).await.map_err(actix_web::error::ErrorServiceUnavailable)?;
        Ok(HttpResponse::Accepted().body(receipt.id().to_string()))
    }
    let app = move || App::new().app_data(web::Data::new(jobs.clone())).route("/", web::post().to(accept));
    let server = HttpServer::new(app).workers(2).bind(("127.0.0.1", 0)).unwrap();
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    let client = actix_rt::spawn(async move {
        let mut answer = awc::Client::default().post(format!("http://{address}/")).send_body("web").await.unwrap();
        let id = answer.body().await.unwrap();
        assert_eq!((answer.status().as_u16(), &id[..]), (202, &b"0-1"[..]));
        let name = told.recv().await;
        handle.stop(true).await;
        name
    });
    let report = runner.serve(server, SECOND).await.unwrap();
    assert_eq!(client.await.unwrap().unwrap(), "web");
    assert_eq!(report.pending, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_axum_server_whose_handlers_enqueue() {
    let dir = tempfile::tempdir().unwrap();
    let (runner, mut told) = hello(dir.path()).await;
    async fn accept(State(jobs): State<Jobs>, name: String) -> Result<(StatusCode, String), StatusCode> {
        let receipt = jobs.enqueue(Hello(name)).await.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
        Ok((StatusCode::ACCEPTED, receipt.id().to_string()))
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = tokio::sync::oneshot::channel::<()>();
    let app = Router::new().route("/", post(accept)).with_state(runner.jobs());
    let server = axum::serve(listener, app).with_graceful_shutdown(async { drop(stopping.await) });
    let client = tokio::spawn(async move {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = b"POST / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 4\r\n\r\naxum";
        stream.write_all(request).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 202 ") && answer.ends_with("0-1"), "{answer}");
        let name = told.recv().await;
        stop.send(()).unwrap();
        name
    });
    let report = runner.serve(server.into_future(), SECOND).await.unwrap();
    assert_eq!(client.await.unwrap().unwrap(), "axum");
    assert_eq!(report.pending, 0);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor there is: no runtime, no reactor.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

#[test]
fn on_a_plain_thread_with_calls_that_block() {
    let dir = tempfile::tempdir().unwrap();
    let (runner, mut told) = block_on(hello(dir.path()));
    let jobs = runner.jobs();
    let id = jobs.enqueue(Hello("later".to_owned())).delay(60 * SECOND).wait().unwrap().id();
    assert!(matches!(jobs.wait(jobs.get(id)).unwrap().unwrap().state, JobState::Pending { .. }));
    assert_eq!(jobs.wait(jobs.cancel(id)).unwrap(), Cancelled::Cancelled);
    let others = [0; 4].map(|_| {
        let jobs = jobs.clone();
        thread::spawn(move || jobs.enqueue(Hello("plain".to_owned())).wait().unwrap().id())
    });
    for other in others {
        let id = other.join().unwrap();
        assert_eq!(jobs.wait(jobs.outcome(id)).unwrap(), JobEnd::Done);
        assert_eq!(told.blocking_recv().unwrap(), "plain");
    }
    jobs.wait(jobs.run_until_idle(60 * SECOND)).unwrap();
    assert_eq!(jobs.health(), Health::Green);
    jobs.wait(runner.shutdown(SECOND)).unwrap();
    assert!(jobs.enqueue(Hello("x".to_owned())).wait().is_err());
}

/// A program may bring an executor of its own.
#[test]
fn under_an_executor_without_a_runtime() {
    let dir = tempfile::tempdir().unwrap();
    let (runner, mut told) = block_on(hello(dir.path()));
    let jobs = runner.jobs();
    block_on(jobs.enqueue(Hello("bare".to_owned())).into_future()).unwrap();
    assert_eq!(told.blocking_recv().unwrap(), "bare");
    assert!(block_on(jobs.run_until_idle(60 * SECOND)).is_ok());
    block_on(runner.shutdown(SECOND)).unwrap();
    assert!(block_on(jobs.enqueue(Hello("x".to_owned())).into_future()).is_err());
}

/// Blocks in its first run until it is let go.
#[derive(Serialize, Deserialize)]
struct Stubborn {
    run: String,
}

struct Gates {
    started: mpsc::Sender<u32>,
    let_go: Arc<std::sync::Mutex<mpsc::Receiver<()>>>,
}

impl Job for Stubborn {
    type Context = Gates;
    type Output = ();
    const KIND: &'static str = "stubborn";

    async fn run(self, cx: Cx<Gates>) -> JobResult<()> {
        cx.context().started.send(cx.attempt()).unwrap();
        if self.run == "blocks" && cx.attempt() == 1 {
            let gate = cx.context().let_go.clone();
            cx.blocking(move || gate.lock().unwrap().recv().unwrap()).await;
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_blocking_section_that_outlives_its_attempt_keeps_the_unit_and_holds_the_ticket() {
    let dir = tempfile::tempdir().unwrap();
    let (started, starts) = mpsc::channel();
    let (release, let_go) = mpsc::channel();
    let let_go = Arc::new(std::sync::Mutex::new(let_go));
    let gates = move || std::future::ready(Ok::<_, std::convert::Infallible>(Gates { started: started.clone(), let_go: let_go.clone() }));
    let runner = Runner::open(dir.path().join("jobs")).capacity(1).context(gates).register::<Stubborn>().start().await.unwrap();
    let jobs = runner.jobs();
    let policy = Policy::default().timeout(Duration::from_millis(20)).base(Duration::ZERO);
    let id = jobs.enqueue(Stubborn { run: "blocks".to_owned() }).policy(policy).await.unwrap().id();
    assert_eq!(starts.recv().unwrap(), 1);
    let held = JobState::Held { why: "a blocking section of an earlier attempt still runs" };
    while jobs.get(id).await.unwrap().unwrap().state != held {
        tokio::task::yield_now().await;
    }
    assert_eq!(jobs.get(id).await.unwrap().unwrap().failures, 1, "timed out");
    let other = jobs.enqueue(Stubborn { run: "other".to_owned() }).priority(0).await.unwrap().id();
    assert!(matches!(jobs.get(other).await.unwrap().unwrap().state, JobState::Pending { .. }), "the only unit is still taken");
    assert_eq!(starts.try_recv(), Err(mpsc::TryRecvError::Empty));
    release.send(()).unwrap();
    jobs.run_until_idle(60 * SECOND).await.unwrap();
    assert_eq!((starts.recv().unwrap(), starts.recv().unwrap()), (1, 2), "the other one first, by its priority, and then the retry");
    assert_eq!(jobs.stats().done, 2);
    runner.shutdown(SECOND).await.unwrap();
}

#[tokio::test]
async fn a_blocking_section_that_panics_fails_its_attempt_alone() {
    #[derive(Serialize, Deserialize)]
    struct Bang;
    impl Job for Bang {
        type Context = ();
        type Output = ();
        const KIND: &'static str = "bang";
        async fn run(self, cx: Cx<()>) -> JobResult<()> {
            cx.blocking(|| panic!("in the section")).await
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::open(dir.path().join("jobs")).register::<Bang>().start().await.unwrap();
    let id = runner.jobs().enqueue(Bang).policy(Policy::default().base(60 * SECOND)).await.unwrap().id();
    let fault = loop {
        if let Some(fault) = runner.jobs().get(id).await.unwrap().unwrap().last_fault {
            break fault;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!((fault.cause(), fault.text()), (Cause::Panicked, "in the section"));
    assert_eq!(runner.jobs().health(), Health::Green);
    runner.shutdown(SECOND).await.unwrap();
}

#[tokio::test]
async fn an_attempt_that_never_comes_to_an_await_does_not_hold_up_the_stop() {
    #[derive(Serialize, Deserialize)]
    struct Spin;
    impl Job for Spin {
        type Context = Arc<std::sync::Mutex<mpsc::Receiver<()>>>;
        type Output = ();
        const KIND: &'static str = "spin";
        async fn run(self, cx: Cx<Self::Context>) -> JobResult<()> {
            // Blocks the worker's own thread, as no job should.
            let _ = cx.context().lock().unwrap().recv();
            Ok(())
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let (release, gate) = mpsc::channel();
    let gate = Arc::new(std::sync::Mutex::new(gate));
    let mut limits = journeyman::Limits::default();
    limits.interrupt_grace = Duration::from_millis(20);
    let context = move || std::future::ready(Ok::<_, std::convert::Infallible>(gate.clone()));
    let runner = Runner::open(dir.path().join("jobs")).limits(limits).context(context).register::<Spin>().start().await.unwrap();
    let id = runner.jobs().enqueue(Spin).await.unwrap().id();
    let once = Policy::default().attempts(1);
    let behind = runner.jobs().enqueue(Spin).policy(once).await.unwrap().id();
    while runner.jobs().get(behind).await.unwrap().unwrap().state != JobState::Running {
        tokio::task::yield_now().await;
    }
    while runner.jobs().get(id).await.unwrap().unwrap().state != JobState::Running {
        tokio::task::yield_now().await;
    }
    let report = runner.shutdown(Duration::from_millis(20)).await.unwrap();
    assert_eq!((report.interrupted, report.pending), (2, 2), "deferred, and nothing is spent: the one behind never began");
    drop(release);
}

/// Computes for longer than it may, and then waits for a moment.
#[derive(Serialize, Deserialize)]
struct Sluggish;

impl Job for Sluggish {
    type Context = UnboundedSender<String>;
    type Output = ();
    const KIND: &'static str = "sluggish";

    async fn run(self, cx: Cx<Self::Context>) -> JobResult<()> {
        thread::sleep(Duration::from_millis(300));
        cx.sleep(Duration::from_millis(10)).await;
        cx.context().send("went on".to_owned()).unwrap();
        Ok(())
    }
}

#[tokio::test]
async fn a_timeout_counts_from_the_beginning_and_cuts_off_at_the_first_await_after_it() {
    let (said, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let context = move || std::future::ready(Ok::<_, std::convert::Infallible>(said.clone()));
    let dir = tempfile::tempdir().unwrap();
    let runner = Runner::open(dir.path().join("jobs")).context(context).register::<Sluggish>().start().await.unwrap();
    let policy = Policy::default().attempts(1).timeout(Duration::from_millis(200));
    let id = runner.jobs().enqueue(Sluggish).policy(policy).await.unwrap().id();
    let end = runner.jobs().outcome(id).await.unwrap();
    assert!(matches!(&end, JobEnd::Spent(Some(fault)) if fault.cause() == Cause::TimedOut), "{end:?}");
    assert!(hears.try_recv().is_err(), "it was dropped at its await");
    runner.shutdown(SECOND).await.unwrap();
}

#[tokio::test]
async fn every_call_that_comes_while_a_runner_stops_is_answered() {
    for round in 0..20 {
        let (said, _hears) = tokio::sync::mpsc::unbounded_channel();
        let context = move || std::future::ready(Ok::<_, std::convert::Infallible>(said.clone()));
        let dir = tempfile::tempdir().unwrap();
        let runner = Runner::open(dir.path().join("jobs")).context(context).register::<Hello>().start().await.unwrap();
        let (over, ends) = mpsc::channel();
        for _ in 0..4 {
            let (jobs, over) = (runner.jobs(), over.clone());
            // One runtime for all its calls: they come as close together as they can.
            thread::spawn(move || {
                let calls = async { while jobs.enqueue(Hello("again".to_owned())).delay(60 * SECOND).await.is_ok() {} };
                tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(calls);
                over.send(()).unwrap();
            });
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        runner.shutdown(SECOND).await.unwrap();
        for _ in 0..4 {
            ends.recv_timeout(30 * SECOND).unwrap_or_else(|_| panic!("round {round}: a call was never answered"));
        }
    }
}
