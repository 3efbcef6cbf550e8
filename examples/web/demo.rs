//! A client that shows what the service answers, and then asks it to stop as a supervisor does. Sees nothing but HTTP.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use awc::http::header::{CONTENT_TYPE, LOCATION, RETRY_AFTER};
use awc::{Client, ClientRequest};
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;

pub(crate) async fn show(address: SocketAddr) -> Shown {
    let shown = Demo { client: Client::default(), address }.run().await;
    // Whatever came of it: the server must not run on.
    kill_process(getpid(), Signal::TERM)?;
    shown
}

type Shown = Result<(), Box<dyn Error>>;

struct Demo {
    client: Client,
    address: SocketAddr,
}

impl Demo {
    async fn run(&self) -> Shown {
        self.post("a job", r#"{"text":"buy milk"}"#, Some("milk")).await?;
        self.post("the same, as its answer got lost", r#"{"text":"buy milk"}"#, Some("milk")).await?;
        self.ended("0-1").await?;
        self.post("one for later", r#"{"text":"buy bread","delay_seconds":3600}"#, None).await?;
        self.get("/jobs/0-2").await?;
        self.get("/jobs/0-3").await?;
        self.post("no JSON", "buy eggs", None).await?;
        self.post("a key that is too long", r#"{"text":"buy eggs"}"#, Some(&"k".repeat(300))).await?;
        self.get("/health").await?;
        let stats: Value = serde_json::from_slice(&self.client.get(self.url("/stats")).send().await?.body().await?)?;
        println!("GET /stats\n    done {}, pending {}", stats["done"], stats["pending"]);
        println!("SIGTERM");
        Ok(())
    }

    async fn post(&self, what: &str, body: &'static str, key: Option<&str>) -> Shown {
        println!("POST /jobs: {what}");
        let request = self.client.post(self.url("/jobs")).insert_header((CONTENT_TYPE, "application/json"));
        let request = if let Some(key) = key { request.insert_header(("Idempotency-Key", key)) } else { request };
        tell(request, body).await
    }

    async fn get(&self, path: &str) -> Shown {
        println!("GET {path}");
        tell(self.client.get(self.url(path)), "").await
    }

    /// Asks until the job has ended; what it answers before depends on the moment.
    async fn ended(&self, id: &str) -> Shown {
        let path = format!("/jobs/{id}");
        loop {
            let found: Value = serde_json::from_slice(&self.client.get(self.url(&path)).send().await?.body().await?)?;
            if !matches!(found["state"].as_str(), Some("pending" | "running")) {
                return self.get(&path).await;
            }
            actix_web::rt::time::sleep(Duration::from_millis(5)).await;
        }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Sends it, and prints the answer.
async fn tell(request: ClientRequest, body: &'static str) -> Shown {
    let mut answer = request.send_body(body).await?;
    let text = answer.body().await?;
    println!("    {} {}", answer.status(), String::from_utf8_lossy(&text));
    for name in [LOCATION, RETRY_AFTER] {
        if let Some(value) = answer.headers().get(&name) {
            println!("    {name}: {}", value.to_str()?);
        }
    }
    Ok(())
}
