//! The job: one webhook for one receiver. It says what happened to a POST; journeyman decides what becomes of it.

use std::path::Path;
use std::time::Duration;

use awc::http::StatusCode;
use awc::http::header::{CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use awc::{Client, Connector};
use journeyman::{Circuit, Configured, Cx, Failure, Job, JobResult, PayloadCodec, Policy, Runner, Target};
use serde::{Deserialize, Serialize};

use crate::events::Events;
use crate::receiver::Receiver;

/// What is stored.
#[derive(Serialize, Deserialize)]
pub(crate) struct Delivery {
    n: usize,
    url: String,
    event: String,
    body: String,
}

impl Delivery {
    /// Job `n`, to be sent to this port.
    pub(crate) fn new(n: usize, port: u16, events: &Events) -> Self {
        let event = events.of(n);
        let url = format!("http://127.0.0.1:{port}/");
        Self { n, url, event: event.name.clone(), body: event.payload.get().to_owned() }
    }
}

impl Job for Delivery {
    /// Each worker has its own client, with its own pool of connections. A client is not `Send`, and need not be.
    type Context = Client;
    type Output = ();
    const KIND: &'static str = "webhook.deliver";
    /// The body is JSON text already: as a string in JSON it would be escaped all over.
    const CODEC: PayloadCodec<Self> = PayloadCodec::postcard();

    fn target(&self) -> Option<Target> {
        Some(Receiver::of(self.n).name().into())
    }

    /// Many attempts, soon: each kill of the process costs one, and the outage ends within seconds.
    fn policy() -> Policy {
        Policy::default().attempts(50).base(Duration::from_millis(100)).cap(Duration::from_secs(2)).timeout(PATIENCE)
    }

    async fn run(self, cx: Cx<Client>) -> JobResult<()> {
        let request = cx.context().post(&self.url).insert_header((CONTENT_TYPE, "application/json"));
        let request = request.insert_header((EVENT, self.event)).insert_header((JOB, self.n)).insert_header((ATTEMPT, cx.attempt()));
        let response = request.send_body(self.body).await?;
        match response.status() {
            status if status.is_success() => Ok(()),
            StatusCode::GONE => Err(Failure::permanent("410 Gone: the receiver wants no more of it")),
            status => Err(busy(status, response.headers())),
        }
    }
}

/// The runner of the example, on a directory.
pub(crate) fn runner(dir: &Path, capacity: u32) -> Configured<Client> {
    let circuit = Circuit::default().threshold(5).window(Duration::from_secs(10)).cooldown(Duration::from_secs(1));
    Runner::open(dir)
        .capacity(capacity)
        .circuit(circuit)
        .context(|| async {
            let connector = Connector::new().limit(NO_LIMIT);
            Ok::<_, std::io::Error>(Client::builder().connector(connector).timeout(PATIENCE).disable_redirects().finish())
        })
        .register::<Delivery>()
}

fn busy(status: StatusCode, headers: &HeaderMap) -> Failure {
    let failure = Failure::transient(format!("the receiver answered {status}"));
    let seconds = headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
    match seconds {
        Some(seconds) => failure.retry_after(Duration::from_secs(seconds)),
        None => failure,
    }
}

/// Headers: the kind of event, the number of the job, the number of the attempt.
pub(crate) const EVENT: &str = "x-event";
pub(crate) const JOB: &str = "x-job";
pub(crate) const ATTEMPT: &str = "x-attempt";
/// Far beyond what a receiver takes: an answer that is given up on would be delivered twice.
const PATIENCE: Duration = Duration::from_secs(30);
/// The runner's capacity is the limit.
const NO_LIMIT: usize = 0;
