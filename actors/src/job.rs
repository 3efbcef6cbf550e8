//! What a user writes: a job type, and what it may answer. Decides nothing about retries; it only says what happened.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::time::Duration;

use journeyman_core::breaker::Verdict;
use journeyman_core::retry::Outcome;
use journeyman_core::{Cause, Fault, Policy, Target};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::codec::{PayloadCodec, Stored};
use crate::cx::Cx;

/// A type of job: its arguments are the fields, stored when it is enqueued and brought back when it runs.
///
/// It runs at least once: after a crash, an attempt that had not been recorded as ended runs again.
///
/// ```
/// use journeyman::{Cx, Failure, Job, JobResult, Target};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize)]
/// struct Mail {
///     to: String,
/// }
///
/// impl Job for Mail {
///     type Context = ();
///     type Output = ();
///     const KIND: &'static str = "mail.send";
///
///     fn target(&self) -> Option<Target> {
///         self.to.rsplit_once('@').map(|(_, host)| host.into())
///     }
///
///     async fn run(self, cx: Cx<()>) -> JobResult<()> {
///         if self.to.is_empty() {
///             return Err(Failure::permanent("no address"));
///         }
///         std::fs::read("letter.txt")?; // any error is retried by the policy
///         Ok(())
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a job",
    note = "implement `journeyman::Job` for it, and derive `serde::Serialize` and `serde::Deserialize`"
)]
pub trait Job: Serialize + DeserializeOwned + 'static {
    /// What all jobs of a worker share: clients, pools, configuration. Built once per worker arbiter; need not be `Send`.
    type Context: 'static;

    /// What a successful run answers.
    type Output: 'static;

    /// The stable name of this type in the journal. 1 to 128 bytes; never give it to another type.
    const KIND: &'static str;

    /// Old names of this type, whose stored jobs it runs; by its own policy. A job keeps the name it was stored under. Names are
    /// shared by all types of a runner: one that is taken twice is an error of `start`.
    const ALIASES: &'static [&'static str] = &[];

    /// The version of the fields. A payload of a higher version than the build knows is held, never ended; one of a lower
    /// version comes back by [`Job::upgrade`].
    const VERSION: u16 = 1;

    /// How the fields are stored.
    const CODEC: PayloadCodec<Self> = PayloadCodec::json();

    /// What the job calls and what can be down: the key of its breaker. Asked at enqueue and stored with the job.
    fn target(&self) -> Option<Target> {
        None
    }

    /// How jobs of this type are retried. Registration may override it, and the enqueue call both.
    fn policy() -> Policy {
        Policy::default()
    }

    /// Brings back a payload that was stored under a lower version than [`Job::VERSION`]. Unless written otherwise, the fields
    /// are read as they are now, by the codec that wrote them.
    ///
    /// ```
    /// # use journeyman::{Cx, Job, JobResult, Stored};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Deserialize)]
    /// struct MailOfOne {
    ///     to: String,
    /// }
    ///
    /// #[derive(Serialize, Deserialize)]
    /// struct Mail {
    ///     to: Vec<String>,
    /// }
    ///
    /// impl Job for Mail {
    ///     // ...
    /// #   type Context = ();
    /// #   type Output = ();
    /// #   const KIND: &'static str = "mail.send";
    ///     const VERSION: u16 = 2;
    ///
    ///     fn upgrade(from: u16, stored: Stored<'_>) -> Result<Self, Box<dyn std::error::Error>> {
    ///         match from {
    ///             1 => Ok(Self { to: vec![stored.read::<MailOfOne>()?.to] }),
    ///             _ => Ok(stored.read()?),
    ///         }
    ///     }
    /// #   async fn run(self, _: Cx<()>) -> JobResult<()> { Ok(()) }
    /// }
    /// ```
    ///
    /// # Errors
    /// Why it does not come back: the job is then held, and waits for a build that understands it. The text of an error
    /// that is not from [`Stored`] is shown nowhere, as it may show the data.
    fn upgrade(from: u16, stored: Stored<'_>) -> Result<Self, Box<dyn Error>> {
        let _ = from;
        Ok(stored.by(&Self::CODEC)?)
    }

    /// Does the work. The future need not be `Send`. `?` on any error makes a failure that is retried.
    ///
    /// It is dropped at its next await when it runs longer than its timeout. A panic is a failure like any other.
    fn run(self, cx: Cx<Self::Context>) -> impl Future<Output = JobResult<Self::Output>>;
}

/// What a job answers.
pub type JobResult<T> = Result<T, Failure>;

/// Why a job did not succeed, and what is to become of it.
///
/// Made from any error by `?`, and then retried by the policy. Not an `Error` itself, so that this conversion can exist.
#[must_use]
pub struct Failure {
    text: String,
    class: Class,
    retry_after: Option<Duration>,
    blames_target: bool,
}

#[derive(Clone, Copy, Debug)]
enum Class {
    Transient,
    Permanent,
    DoNotRepeat,
    Defer(Duration),
}

impl Failure {
    /// It may pass next time: retried by the policy; a failure of the target to its breaker.
    pub fn transient(error: impl Into<Box<dyn Error>>) -> Self {
        Self::new(Class::Transient, &*error.into())
    }

    /// A retry cannot help: the job ends as rejected. To its breaker the target answered.
    pub fn permanent(error: impl Into<Box<dyn Error>>) -> Self {
        Self::new(Class::Permanent, &*error.into())
    }

    /// Not now: back in line for `wait`, spending no attempt and saying nothing of the target.
    pub fn defer(wait: Duration) -> Self {
        Self { text: String::new(), class: Class::Defer(wait), retry_after: None, blames_target: false }
    }

    /// The target asked to be left alone for `wait`: the next attempt comes then, at most the policy's `retry_after_cap` later.
    pub const fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// Something else is to blame: retried, but no verdict on the target.
    pub const fn not_the_target(mut self) -> Self {
        self.blames_target = false;
        self
    }

    /// It might pass, but doing it twice would harm: the job ends as unsafe to repeat.
    pub const fn do_not_repeat(mut self) -> Self {
        self.class = Class::DoNotRepeat;
        self
    }

    /// What it is kept by: the error and its sources in one line. May be private: `Debug` hides it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    fn new(class: Class, error: &dyn Error) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        Self { text, class, retry_after: None, blames_target: true }
    }

    /// What the policy makes of it.
    pub(crate) fn outcome(&self) -> Outcome {
        match self.class {
            Class::Transient => Outcome::Transient { retry_after: self.retry_after.map(Into::into) },
            Class::Permanent => Outcome::Rejected,
            Class::DoNotRepeat => Outcome::Unsafe,
            Class::Defer(wait) => Outcome::Deferred { wait: wait.into() },
        }
    }

    /// What the breaker makes of it.
    pub(crate) const fn verdict(&self) -> Verdict {
        match self.class {
            _ if !self.blames_target => Verdict::None,
            Class::Transient | Class::DoNotRepeat => Verdict::Failure,
            Class::Permanent => Verdict::Success,
            Class::Defer(_) => Verdict::None,
        }
    }

    /// What is kept of it.
    pub(crate) fn into_fault(self) -> Fault {
        Fault::new(Cause::Failed, self.text)
    }
}

/// An error may show what the job was given, as that of a parser does.
impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { text, class, retry_after, blames_target } = self;
        let mut failure = f.debug_struct("Failure");
        failure.field("class", class).field("retry_after", retry_after).field("blames_target", blames_target);
        failure.field("text", &format_args!("{} bytes", text.len())).finish()
    }
}

impl<E: Into<Box<dyn Error>>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::transient(error)
    }
}
