//! Webhooks over real HTTP, through kills: a parent hosts six receivers and a ledger of what they got; a child embeds
//! journeyman, enqueues, and delivers with POST. The parent kills the child at random moments and starts it again on the
//! same directory. At the end every job is counted, one by one. Never leaves the loopback interface.
//!
//! ```text
//! cargo run --release --example webhooks -- --jobs 20000 --kill 20
//! ```
//!
//! One line on stderr and exit status 2 for bad input, with nothing on disk changed; exit status 1 when anything that
//! should hold does not.

mod child;
mod delivery;
mod events;
mod kills;
mod ledger;
mod options;
mod place;
mod progress;
mod receiver;
mod report;
mod run;
mod sender;
mod servers;
mod words;

use std::process::ExitCode;

use clap::Parser;
use options::Options;
use run::Failed;

fn main() -> ExitCode {
    match Options::try_parse() {
        Ok(options) if options.sender => sender::main(&options),
        Ok(options) => parent(options),
        Err(error) if error.use_stderr() => bad_input(first_line(&error.to_string())),
        Err(help) => help.exit(),
    }
}

fn parent(options: Options) -> ExitCode {
    match actix_rt::System::new().block_on(run::run(options)) {
        Ok(report) => {
            println!("{report}");
            let broken = report.broken();
            broken.iter().for_each(|what| eprintln!("webhooks: does not hold: {what}"));
            if broken.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(Failed::Input(why)) => bad_input(&why),
        Err(Failed::Run(why)) => {
            eprintln!("webhooks: {why}");
            ExitCode::FAILURE
        }
    }
}

fn bad_input(why: &str) -> ExitCode {
    eprintln!("webhooks: {why}");
    ExitCode::from(2)
}

/// What is wrong, without the usage that clap puts below.
fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ")
}
