//! The service of the example `web` in short, on tokio and axum: at SIGTERM no new attempt starts, HTTP drains and may still
//! enqueue, running attempts come to their end. It is its own client, and stops itself as a supervisor would.
//!
//! `cargo run --example axum`

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use journeyman::{CallError, Cx, EnqueueError, Found, Health, Job, JobEnd, JobId, JobResult, Jobs, Runner, stop_signal};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

#[derive(Serialize, Deserialize)]
struct Greet(String);

impl Job for Greet {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "greet";

    /// Takes longer than the client waits before the stop: it ends within the drain.
    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        cx.sleep(Duration::from_millis(500)).await;
        println!("job {} in attempt {}: hello, {}", cx.id(), cx.attempt(), self.0);
        Ok(())
    }
}

async fn greet(State(jobs): State<Jobs>, headers: HeaderMap, name: String) -> Result<Response, Refused> {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let enqueue = jobs.enqueue(Greet(name));
    let receipt = if let Some(key) = key { enqueue.key(key).await? } else { enqueue.await? };
    Ok((StatusCode::ACCEPTED, receipt.id().to_string()).into_response())
}

async fn find(State(jobs): State<Jobs>, Path(id): Path<String>) -> Result<Response, Refused> {
    let Ok(id) = id.parse::<JobId>() else { return Ok(StatusCode::NOT_FOUND.into_response()) };
    Ok(match jobs.find(id).await? {
        Found::Live(_) => "it has not ended".into_response(),
        Found::Gone(JobEnd::NotFound) => StatusCode::NOT_FOUND.into_response(),
        Found::Gone(end) => format!("{end:?}").into_response(),
        _ => StatusCode::NO_CONTENT.into_response(),
    })
}

async fn health(State(jobs): State<Jobs>) -> Response {
    match jobs.health() {
        Health::Red { why } => (StatusCode::SERVICE_UNAVAILABLE, why).into_response(),
        _ => "well".into_response(),
    }
}

/// A refusal that passes by itself; its text says what is stored and what is not.
struct Refused(String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "2")], self.0).into_response()
    }
}

impl From<EnqueueError> for Refused {
    fn from(error: EnqueueError) -> Self {
        Self(error.to_string())
    }
}

impl From<CallError> for Refused {
    fn from(error: CallError) -> Self {
        Self(error.to_string())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let fresh = tempfile::tempdir()?;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    let runner = Runner::open(fresh.path().join("jobs")).register::<Greet>().start().await?;
    let jobs = runner.jobs();
    let routes = Router::new().route("/greet", post(greet)).route("/jobs/{id}", get(find)).route("/health", get(health));
    let server = axum::serve(listener, routes.with_state(jobs.clone())).with_graceful_shutdown(stop_signal());

    let client = tokio::spawn(async move { client(address).await.map_err(|error| error.to_string()) });
    // Both hear the signal: the runner starts nothing more, the server ends, and then the attempts have these ten seconds.
    let report = runner.serve(server.into_future(), Duration::from_secs(10)).await?;
    client.await??;
    println!("stopped: {} done, {} cut short, {} left", jobs.stats().done, report.interrupted, report.pending);
    Ok(())
}

async fn client(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    let asked = ask_all(address).await;
    println!("SIGTERM");
    kill_process(getpid(), Signal::TERM)?;
    asked
}

async fn ask_all(address: SocketAddr) -> Result<(), Box<dyn Error>> {
    ask(address, "POST /greet", "idempotency-key: ada\r\n", "Ada").await?;
    ask(address, "POST /greet", "idempotency-key: ada\r\n", "Ada").await?;
    ask(address, "GET /jobs/0-1", "", "").await?;
    ask(address, "GET /jobs/0-2", "", "").await?;
    ask(address, "GET /health", "", "").await
}

/// One request on a connection of its own; prints the status and the body.
async fn ask(address: SocketAddr, what: &str, headers: &str, body: &str) -> Result<(), Box<dyn Error>> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let request = format!("{what} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no whole answer")?;
    let status = head.lines().next().unwrap_or_default().trim_start_matches("HTTP/1.1 ");
    println!("{}", format!("{what}: {status} {body}").trim_end());
    Ok(())
}
