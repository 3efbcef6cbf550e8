//! The smallest real embedding: one job type, one directory, no server. Never touches the network.
//!
//! `cargo run --example quickstart [DIR]`. Run it twice on the same directory: the second time, Grace's key is taken.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use journeyman::{Cx, Job, JobResult, Runner};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Job for Greet {
    type Context = ();
    type Output = ();
    const KIND: &'static str = "greet";

    async fn run(self, cx: Cx<()>) -> JobResult<()> {
        println!("job {} says: hello, {}", cx.id(), self.name);
        Ok(())
    }
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let fresh = tempfile::tempdir()?;
    let dir = std::env::args_os().nth(1).map_or_else(|| fresh.path().to_owned(), PathBuf::from);
    let runner = Runner::open(dir).register::<Greet>().start().await?;
    let jobs = runner.jobs();

    let ada = jobs.enqueue(Greet { name: "Ada".to_owned() }).await?;
    let grace = jobs.enqueue(Greet { name: "Grace".to_owned() }).key("greet-grace").await?;
    let again = jobs.enqueue(Greet { name: "Grace".to_owned() }).key("greet-grace").await?;
    jobs.run_until_idle(Duration::from_secs(10)).await?;

    println!("Ada is job {}, Grace is job {}; asked again: job {}, new: {}", ada.id(), grace.id(), again.id(), again.is_new());
    println!("done: {}", jobs.stats().done);
    let report = runner.shutdown(Duration::from_secs(10)).await?;
    println!("left for the next start: {}", report.pending);
    Ok(())
}
