//! How far it is, for whoever watches: a bar on a terminal, else a plain line each second. On stderr; the result alone goes
//! to stdout.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::ledger::Counts;
use crate::receiver::Receiver;
use crate::words::Standing;

pub(crate) struct Progress {
    bar: ProgressBar,
    told: Instant,
}

impl Progress {
    pub(crate) fn new(jobs: usize) -> Self {
        let bar = ProgressBar::new(jobs as u64);
        if let Ok(style) = ProgressStyle::with_template("{elapsed:>4} {bar:50} {msg}") {
            bar.set_style(style);
        }
        Self { bar, told: Instant::now() }
    }

    /// Shows where it stands.
    pub(crate) fn show(&mut self, counts: Counts, standing: &Standing) {
        self.bar.set_position(counts.settled() as u64);
        if !self.bar.is_hidden() {
            self.bar.set_message(format!("{}\n     {}", line(counts), breakers(standing)));
        } else if self.told.elapsed() >= INTERVAL {
            self.told = Instant::now();
            eprintln!("{}; {}", line(counts), breakers(standing));
        }
    }

    /// Takes the bar away.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    /// Says something that stays.
    pub(crate) fn note(&self, text: &str) {
        if self.bar.is_hidden() { eprintln!("{text}") } else { self.bar.println(text) }
    }
}

fn line(counts: Counts) -> String {
    let Counts { accepted, delivered, rejected } = counts;
    format!("accepted {accepted}, delivered {delivered}, rejected {rejected}, waiting {}", accepted.saturating_sub(counts.settled()))
}

fn breakers(standing: &Standing) -> String {
    let states = Receiver::ALL.iter().zip(&standing.breakers).map(|(receiver, breaker)| format!("{} {}", receiver.name(), breaker.state));
    states.collect::<Vec<_>>().join(", ")
}

/// Between two plain lines.
const INTERVAL: Duration = Duration::from_secs(1);
