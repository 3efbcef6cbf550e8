//! What a kill leaves: how soon the jobs that ran then run again, and whether one is lost that was acknowledged.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::asked::{Asked, Workload};
use crate::child::Child;
use crate::line::Line;
use crate::shop::{self, Shop};
use crate::{Fallible, books, payload};

/// Sixty-four jobs are in their handlers when the process is killed.
pub(crate) fn with_running(asked: &Asked) -> Fallible<()> {
    asked.clear()?;
    let mut held = Child::start(Workload::Hold, asked)?;
    let running = held.numbers(1)?[0];
    held.kill()?;
    if running != RUNNING as f64 {
        return Err(format!("{running} of {RUNNING} jobs ran").into());
    }
    let began = Instant::now();
    let mut next = Child::start(Workload::Recover, asked)?;
    let said = next.numbers(5)?;
    let total = began.elapsed().as_secs_f64();
    next.wait()?;
    let (again, twice) = (said[3] as u64, said[4] as u64);
    let line = Line::new(Workload::W7crash, asked).number("total_s", total).number("open_s", said[0]).number("first_s", said[1]);
    line.number("last_s", said[2]).count("reran", again).count("lost", RUNNING - again).count("dups", twice).print();
    if again == RUNNING && twice == 0 { Ok(()) } else { Err(format!("{again} of {RUNNING} ran again, {twice} twice").into()) }
}

pub(crate) async fn hold(asked: &Asked) -> Fallible<()> {
    books::hold();
    let shop = Shop::open(&Asked { conc: RUNNING as u32, ..asked.clone() }).await?;
    for number in 1..=RUNNING {
        shop::enqueue(&shop.jobs, payload::numbered(number)).await?;
    }
    let began = Instant::now();
    while books::started() < RUNNING && began.elapsed().as_secs_f64() < asked.cap {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    println!("{}", books::started());
    std::future::pending().await
}

/// Says when it was open, when the first and the last ran again, how many did, and how many of these twice.
pub(crate) async fn recover(asked: &Asked) -> Fallible<()> {
    books::open();
    let shop = Shop::open(&Asked { conc: RUNNING as u32, ..asked.clone() }).await?;
    let open = payload::nanos() as f64 / 1e9;
    let began = Instant::now();
    let again = || (1..=RUNNING).filter(|number| books::has_run(*number)).count() as u64;
    while again() < RUNNING && began.elapsed().as_secs_f64() < asked.cap {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (first, last) = books::first_and_last();
    println!("{open} {first} {last} {} {}", again(), books::twice());
    shop.close().await
}

/// The process is killed under its producers; nothing that one of them heard of may be missing then.
pub(crate) fn with_acknowledged(asked: &Asked) -> Fallible<()> {
    asked.clear()?;
    let mut child = Child::start(Workload::Acknowledge, asked)?;
    let reads = child.reads_on();
    std::thread::sleep(Duration::from_secs_f64(asked.secs));
    child.kill()?;
    let said = reads.join().map_err(|_| "the reader has panicked")??;
    let acknowledged = said.len() / NUMBER;
    fs::write(acknowledged_file(asked), &said[..acknowledged * NUMBER])?;
    let mut next = Child::start(Workload::Count, asked)?;
    let counted = next.numbers(3)?;
    next.wait()?;
    fs::remove_file(acknowledged_file(asked))?;
    let (acknowledged, found, twice) = (acknowledged as u64, counted[0] as u64, counted[1] as u64);
    let line = Line::new(Workload::W7ack, asked).count("acked", acknowledged).count("found", found);
    line.count("lost", acknowledged - found).count("dups", twice).count("timed_out", counted[2] as u64).print();
    if acknowledged == found && twice == 0 {
        Ok(())
    } else {
        Err(format!("{found} of {acknowledged} acknowledged jobs were found, {twice} ran twice").into())
    }
}

/// Writes the number of each job to the standard output once it is acknowledged, each in one write without a buffer.
pub(crate) async fn acknowledge(asked: &Asked) -> Fallible<()> {
    let shop = Shop::closed(asked).await?;
    let out = Arc::new(File::from(std::io::stdout().as_fd().try_clone_to_owned()?));
    let produce = |_| {
        let (jobs, out) = (shop.jobs.clone(), out.clone());
        tokio::spawn(async move {
            loop {
                let number = payload::take_number();
                shop::enqueue(&jobs, payload::numbered(number)).await?;
                (&*out).write_all(&number.to_le_bytes())?;
            }
        })
    };
    let producers: Vec<tokio::task::JoinHandle<Fallible<()>>> = (0..asked.producers).map(produce).collect();
    for producer in producers {
        producer.await??;
    }
    Ok(())
}

/// Runs what is there until nothing has started for a while. Says how many of the acknowledged ran, how many ran twice, and 1 when
/// there was no end of it.
pub(crate) async fn count(asked: &Asked) -> Fallible<()> {
    books::open();
    let acknowledged = fs::read(acknowledged_file(asked))?;
    let shop = Shop::open(asked).await?;
    let began = Instant::now();
    let (mut started, mut quiet_since) = (0, began);
    while quiet_since.elapsed() < QUIET && began.elapsed().as_secs_f64() < asked.cap {
        if books::started() != started {
            (started, quiet_since) = (books::started(), Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let numbers = acknowledged.chunks_exact(NUMBER).filter_map(|bytes| bytes.try_into().ok().map(u64::from_le_bytes));
    let found = numbers.filter(|number| books::has_run(*number)).count();
    println!("{found} {} {}", books::twice(), u8::from(quiet_since.elapsed() < QUIET));
    shop.close().await
}

fn acknowledged_file(asked: &Asked) -> PathBuf {
    asked.dir().join("acknowledged.numbers")
}

const RUNNING: u64 = 64;
/// Bytes of a number.
const NUMBER: usize = 8;
/// So long nothing starts when everything has.
const QUIET: Duration = Duration::from_secs(4);
