//! A web service that takes work and answers before it is done: `202 Accepted` says that the job is on disk. Asked to show itself,
//! it is its own client; asked to serve, it runs until SIGTERM or Ctrl-C and stops in order. Listens on 127.0.0.1 only.
//!
//! ```text
//! cargo run --example web                                      # a few requests and their answers
//! cargo run --example web -- --serve --dir notes.d --port 8080
//! curl -i -H 'Idempotency-Key: milk' --json '{"text":"buy milk"}' http://127.0.0.1:8080/jobs
//! ```

mod api;
mod demo;
mod note;

use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::{App, HttpServer, web};
use clap::Parser;
use journeyman::{Jobs, Runner, ShutdownReport};
use note::{Note, Notebook};

/// Takes notes over HTTP, and writes each into a notebook in its own time.
#[derive(Parser)]
#[command(name = "web")]
struct Options {
    /// Run until SIGTERM or Ctrl-C, instead of showing a few requests and their answers
    #[arg(long, requires = "dir")]
    serve: bool,

    /// Where the jobs and the notebook are kept; without it, in a temporary directory
    #[arg(long)]
    dir: Option<PathBuf>,

    /// The port to listen on; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,

    /// What the server gets to end its requests, and what the running jobs get after it
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    drain_seconds: u64,

    /// How long a job takes
    #[arg(long, value_name = "MILLISECONDS", default_value_t = 20)]
    job_ms: u64,
}

fn main() -> ExitCode {
    match actix_web::rt::System::new().block_on(run(&Options::parse())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("web: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let fresh = tempfile::tempdir()?;
    let dir = options.dir.as_deref().unwrap_or_else(|| fresh.path());
    // What can fail comes before the first job runs.
    let listener = TcpListener::bind(("127.0.0.1", options.port))?;
    let address = listener.local_addr()?;
    let runner = open(dir, Duration::from_millis(options.job_ms)).await?;
    let drain = Duration::from_secs(options.drain_seconds);
    let server = listen(listener, runner.jobs(), options.drain_seconds)?;
    let stopped = if options.serve {
        println!("listening on http://{address}");
        runner.serve(server, drain).await?
    } else {
        let client = actix_web::rt::spawn(demo::show(address));
        let stopped = runner.serve(server, drain).await?;
        client.await??;
        stopped
    };
    say(&stopped);
    Ok(())
}

async fn open(dir: &Path, takes: Duration) -> Result<Runner, Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let notebook = dir.join("notebook.txt");
    let runner = Runner::open(dir.join("jobs")).context(move || std::future::ready(Notebook::open(&notebook, takes)));
    Ok(runner.register::<Note>().start().await?)
}

fn listen(listener: TcpListener, jobs: Jobs, drain_seconds: u64) -> io::Result<Server> {
    let jobs = web::Data::new(jobs);
    let app = move || App::new().app_data(jobs.clone()).configure(api::routes);
    Ok(HttpServer::new(app).workers(2).shutdown_timeout(drain_seconds).listen(listener)?.run())
}

fn say(stopped: &ShutdownReport) {
    println!("stopped: {} cut short, {} left for the next start", stopped.interrupted, stopped.pending);
}
