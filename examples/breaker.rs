//! The outage of a target, told in virtual time: when its breaker opens, how little the outage costs while hundreds of jobs
//! wait for it, how it is found to be over, and that another target feels nothing of it. Never sleeps.
//!
//! `cargo run --example breaker`

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use journeyman::testing::TestRunner;
use journeyman::{BreakerState, Circuit, Cx, Failure, Job, JobResult, Policy, Runner, Target, TargetInfo};
use serde::{Deserialize, Serialize};

/// A letter to one of two towns.
#[derive(Serialize, Deserialize)]
struct Letter {
    town: String,
}

impl Job for Letter {
    type Context = Arc<World>;
    type Output = ();
    const KIND: &'static str = "letter.deliver";

    fn target(&self) -> Option<Target> {
        Some(self.town.as_str().into())
    }

    fn policy() -> Policy {
        Policy::default().attempts(10).base(Duration::from_secs(1)).cap(Duration::from_secs(10))
    }

    async fn run(self, cx: Cx<Arc<World>>) -> JobResult<()> {
        let world = cx.context();
        cx.sleep(WALK).await;
        if self.town == EAST && !world.bridge_stands.load(Ordering::Relaxed) {
            world.turned_back.fetch_add(1, Ordering::Relaxed);
            return Err(Failure::transient("the bridge is down"));
        }
        Ok(())
    }
}

/// What lies outside the runner: the bridge to the east, and who was turned back at it.
#[derive(Default)]
struct World {
    bridge_stands: AtomicBool,
    turned_back: AtomicU64,
}

#[actix::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let world = Arc::new(World::default());
    let outside = world.clone();
    let circuit = Circuit::default().threshold(5).window(Duration::from_secs(60)).cooldown(COOLDOWN);
    let context = move || std::future::ready(Ok::<_, io::Error>(outside.clone()));
    let runner = Runner::in_memory().capacity(4).circuit(circuit).context(context).register::<Letter>().test().await?;
    let story = Story { began: runner.now(), runner, world };

    story.the_bridge_is_down().await?;
    story.a_probe_fails().await?;
    story.ten_minutes_pass().await?;
    story.a_probe_succeeds().await
}

/// The runner, what lies around it, and since when the story runs.
struct Story {
    runner: TestRunner<Arc<World>>,
    world: Arc<World>,
    began: SystemTime,
}

impl Story {
    async fn the_bridge_is_down(&self) -> Told {
        let jobs = self.runner.jobs();
        let receipts = jobs.enqueue_all((0..500).map(|_| jobs.enqueue(letter(EAST)))).await?;
        self.say(&format!("{} letters for the east are on disk, four set out at a time, and the bridge is down", receipts.len())).await?;
        self.runner.advance(WALK).await;
        self.say("four were turned back: below the threshold, four more set out").await?;
        self.runner.advance(WALK).await;
        self.say("the fifth failure opened the breaker; the three behind it changed nothing").await
    }

    async fn a_probe_fails(&self) -> Told {
        self.runner.advance(COOLDOWN).await;
        self.say("its cooldown is over: one letter sets out to look").await?;
        self.runner.advance(WALK).await;
        self.say("it was turned back").await
    }

    /// The west gets a letter each half minute, and never notices.
    async fn ten_minutes_pass(&self) -> Told {
        let (records, turned_back) = (self.runner.jobs().stats().records, self.turned_back());
        for _ in 0..20 {
            self.one_for_the_west().await?;
            self.runner.advance(Duration::from_secs(30) - WALK).await;
        }
        self.say("ten minutes have passed").await?;
        let records = self.runner.jobs().stats().records - records;
        let probes = self.turned_back() - turned_back;
        print!("            they wrote {records} records: 3 for each of 20 letters to the west, ");
        println!("2 for each of {probes} probes, none for those that wait");
        assert_eq!(records, 3 * 20 + 2 * probes);
        Ok(())
    }

    async fn a_probe_succeeds(&self) -> Told {
        self.world.bridge_stands.store(true, Ordering::Relaxed);
        self.say("the bridge stands again, and nobody says so").await?;
        self.advance_to(BreakerState::HalfOpen).await?;
        self.say("the next letter sets out to look").await?;
        self.runner.advance(WALK).await;
        self.say("it was delivered: four more set out").await?;
        self.runner.run_until_idle(Duration::from_secs(600)).await?;
        self.say("all are delivered").await
    }

    /// A letter to the west takes as long as the walk, as if nothing were wrong elsewhere.
    async fn one_for_the_west(&self) -> Told {
        let jobs = self.runner.jobs();
        let id = jobs.enqueue(letter(WEST)).await?.id();
        self.runner.advance(WALK).await;
        assert!(jobs.get(id).await?.is_none(), "letter {id} to the west is delivered in one walk");
        Ok(())
    }

    async fn advance_to(&self, breaker: BreakerState) -> Told {
        while self.east().await?.breaker != breaker {
            self.runner.advance(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Tells what happened, and how the east stands.
    async fn say(&self, line: &str) -> Told {
        let time = self.runner.now().duration_since(self.began)?;
        let (east, stats) = (self.east().await?, self.runner.jobs().stats());
        println!("{:>8.1} s  {line}", time.as_secs_f64());
        println!(
            "            east: {}, opened {} times, holds back {}; in all {} turned back, {} delivered",
            east.breaker,
            east.openings,
            east.held,
            self.turned_back(),
            stats.done
        );
        Ok(())
    }

    async fn east(&self) -> Result<TargetInfo, Box<dyn Error>> {
        let targets = self.runner.jobs().targets().await?;
        targets.into_iter().find(|info| info.target.as_str() == EAST).ok_or_else(|| "the east was never called".into())
    }

    fn turned_back(&self) -> u64 {
        self.world.turned_back.load(Ordering::Relaxed)
    }
}

type Told = Result<(), Box<dyn Error>>;

fn letter(town: &str) -> Letter {
    Letter { town: town.to_owned() }
}

const EAST: &str = "east";
const WEST: &str = "west";
/// What an attempt takes.
const WALK: Duration = Duration::from_secs(1);
const COOLDOWN: Duration = Duration::from_secs(30);
