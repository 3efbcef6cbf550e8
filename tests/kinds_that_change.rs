//! Job types that changed since their jobs were stored: a new name, a new version. Proves that what an older build wrote runs
//! in a newer one, that what cannot be understood is held without a trace of its data, and that names are never ambiguous.

use std::error::Error;
use std::sync::{Arc, Mutex};

use journeyman::{Configured, Cx, Job, JobEnd, JobId, JobResult, JobState, PayloadCodec, Policy, Query, Runner, StartError, Stored};
use journeyman_core::disk::MemDisk;
use serde::{Deserialize, Serialize};

use crate::jobs::{HOUR, MINUTE, SECOND};

/// To whom letters went.
type Sent = Arc<Mutex<Vec<String>>>;

macro_rules! letter {
    ($name:ident { $($field:ident: $type:ty),* }, $sent:expr, $($item:item)*) => {
        #[derive(Serialize, Deserialize)]
        struct $name { $($field: $type),* }

        impl Job for $name {
            type Context = Sent;
            type Output = ();
            $($item)*

            async fn run(self, cx: Cx<Sent>) -> JobResult<()> {
                let sent: fn(Self) -> String = $sent;
                cx.context().lock().unwrap().push(sent(self));
                Ok(())
            }
        }
    };
}

letter! { Mail { to: String }, |mail| mail.to,
    const KIND: &'static str = "mail";
}

letter! { Letter { to: String }, |letter| letter.to,
    const KIND: &'static str = "letter";
    const ALIASES: &'static [&'static str] = &["mail", "post"];
}

letter! { Many { to: Vec<String> }, |many| many.to.join("+"),
    const KIND: &'static str = "letter";
    const ALIASES: &'static [&'static str] = &["mail"];
    const VERSION: u16 = 3;
    const CODEC: PayloadCodec<Self> = PayloadCodec::postcard();

    fn upgrade(from: u16, stored: Stored<'_>) -> Result<Self, Box<dyn Error>> {
        match from {
            1 => Ok(Self { to: vec![stored.read::<Mail>()?.to] }),
            _ => Err(format!("cannot read {}", String::from_utf8_lossy(stored.bytes())).into()),
        }
    }
}

letter! { Two { to: String }, |two| two.to,
    const KIND: &'static str = "letter";
    const VERSION: u16 = 2;
}

letter! { Twice { to: String }, |it| it.to,
    const KIND: &'static str = "post";
}

letter! { Itself { to: String }, |it| it.to,
    const KIND: &'static str = "itself";
    const ALIASES: &'static [&'static str] = &["itself"];
}

letter! { Unnamed { to: String }, |it| it.to,
    const KIND: &'static str = "unnamed";
    const ALIASES: &'static [&'static str] = &[""];
}

letter! { Changed { to: u32 }, |it| it.to.to_string(),
    const KIND: &'static str = "mail";
    const VERSION: u16 = 2;
}

fn runner(sent: &Sent) -> Configured<Sent> {
    let sent = sent.clone();
    Runner::in_memory().context(move || std::future::ready(Ok::<_, std::convert::Infallible>(sent.clone())))
}

/// Stores a job that is not run yet, and gives the disk.
async fn stored<J: Job<Context = Sent>>(job: J) -> (MemDisk, JobId) {
    let t = runner(&Sent::default()).register::<J>().test().await.unwrap();
    let id = t.jobs().enqueue(job).delay(SECOND).await.unwrap().id();
    t.shutdown(SECOND).await.unwrap();
    (t.disk().clone(), id)
}

fn to(name: &str) -> String {
    name.to_owned()
}

#[actix::test]
async fn what_was_stored_under_an_old_name_runs_under_the_new_one() {
    let (disk, id) = stored(Mail { to: to("old") }).await;
    let sent = Sent::default();
    let t = runner(&sent).register::<Letter>().test_with(disk, 0).await.unwrap();
    assert_eq!(t.jobs().get(id).await.unwrap().unwrap().kind.as_str(), "mail", "a job keeps its name");
    assert_eq!(t.jobs().list(Query::new().kind("mail")).await.unwrap().jobs.len(), 1);
    t.jobs().enqueue(Letter { to: to("new") }).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!(*sent.lock().unwrap(), ["new", "old"]);
    assert_eq!(t.jobs().stats().done, 2);
}

/// Fails whenever it runs.
#[derive(Serialize, Deserialize)]
struct Hopeless {
    to: String,
}

impl Job for Hopeless {
    type Context = Sent;
    type Output = ();
    const KIND: &'static str = "hopeless";
    const ALIASES: &'static [&'static str] = &["mail"];

    fn policy() -> Policy {
        Policy::default().attempts(2)
    }

    async fn run(self, cx: Cx<Sent>) -> JobResult<()> {
        cx.context().lock().unwrap().push(self.to);
        Err("told to fail".into())
    }
}

#[actix::test]
async fn the_policy_of_an_old_name_is_that_of_the_type() {
    let (disk, id) = stored(Mail { to: to("x") }).await;
    let sent = Sent::default();
    let t = runner(&sent).register::<Hopeless>().test_with(disk, 0).await.unwrap();
    assert!(matches!(t.drive(t.jobs().outcome(id), HOUR).await, Some(Ok(JobEnd::Spent(_)))));
    assert_eq!(sent.lock().unwrap().len(), 2, "twenty unless the type says otherwise");
}

#[actix::test]
async fn a_name_that_is_nobodys_alias_is_held() {
    let (disk, id) = stored(Mail { to: to("old") }).await;
    let t = runner(&Sent::default()).register::<Two>().test_with(disk, 0).await.unwrap();
    t.advance(HOUR).await;
    assert!(matches!(t.jobs().get(id).await.unwrap().unwrap().state, JobState::Held { .. }));
}

#[actix::test]
async fn an_older_version_is_upgraded_by_the_codec_that_wrote_it() {
    let (disk, _) = stored(Mail { to: to("one") }).await;
    let sent = Sent::default();
    let t = runner(&sent).register::<Many>().test_with(disk, 0).await.unwrap();
    t.jobs().enqueue(Many { to: vec![to("two"), to("three")] }).delay(MINUTE).await.unwrap();
    t.advance(HOUR).await;
    assert_eq!(*sent.lock().unwrap(), ["one", "two+three"]);
}

#[actix::test]
async fn an_upgrade_that_fails_holds_the_job_and_shows_none_of_it() {
    let (disk, id) = stored(Two { to: to("canary") }).await;
    let sent = Sent::default();
    let mut t = runner(&sent).register::<Many>().test_with(disk, 0).await.unwrap();
    t.advance(HOUR).await;
    let info = t.jobs().get(id).await.unwrap().unwrap();
    assert_eq!((info.state, info.failures), (JobState::Held { why: "its payload cannot be decoded by this build" }, 0));
    assert!(!format!("{info:?}").contains("canary"));
    t.crash_and_reopen().await.unwrap();
    assert_eq!(t.jobs().stats().held, 1);
    let disk = t.disk().clone();
    drop(t);
    let t = runner(&sent).register::<Two>().test_with(disk, 0).await.unwrap();
    t.advance(HOUR).await;
    assert_eq!(*sent.lock().unwrap(), ["canary"], "a build that understands it runs it");
}

#[actix::test]
async fn unless_written_otherwise_an_older_payload_is_read_as_the_fields_are_now() {
    let (disk, _) = stored(Letter { to: to("same") }).await;
    let sent = Sent::default();
    let t = runner(&sent).register::<Two>().test_with(disk, 0).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!(*sent.lock().unwrap(), ["same"]);
    let (disk, _) = stored(Mail { to: to("canary") }).await;
    let t = runner(&sent).register::<Changed>().test_with(disk, 0).await.unwrap();
    t.advance(MINUTE).await;
    assert_eq!((t.jobs().stats().held, t.jobs().stats().done), (1, 0));
}

#[actix::test]
async fn a_name_that_is_taken_twice_is_an_error_of_the_start() {
    let sent = Sent::default();
    let starts = [
        (runner(&sent).register::<Letter>().register::<Mail>(), "kind mail is registered twice"),
        (runner(&sent).register::<Twice>().register::<Letter>(), "kind post is registered twice"),
        (runner(&sent).register::<Itself>(), "kind itself is registered twice"),
        (runner(&sent).register::<Unnamed>(), "a kind's name takes 1 to 128 bytes, not 0"),
    ];
    for (start, why) in starts {
        let error = start.test().await.unwrap_err();
        assert_eq!(error.to_string(), why);
        assert!(matches!(error, StartError::DuplicateKind(_) | StartError::KindName { .. }));
    }
}
