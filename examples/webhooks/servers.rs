//! The receivers on HTTP: each a server of its own on a port of its own, all writing into one ledger. What they answer is
//! not decided here.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix_rt::time::sleep;
use actix_web::dev::ServerHandle;
use actix_web::http::header::RETRY_AFTER;
use actix_web::web::{self, Bytes, Data, PayloadConfig};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer};

use crate::delivery::{ATTEMPT, EVENT, JOB};
use crate::events::Events;
use crate::ledger::Ledger;
use crate::receiver::{Answer, Receiver};

/// What a receiver knows.
#[derive(Clone)]
pub(crate) struct Desk {
    pub receiver: Receiver,
    pub seed: u64,
    pub events: Arc<Events>,
    pub ledger: Arc<Ledger>,
}

/// A receiver that listens.
pub(crate) struct Server {
    desk: Desk,
    port: u16,
    handle: ServerHandle,
}

impl Server {
    /// Listens on the first free port at or after `first`.
    pub(crate) fn start(desk: Desk, first: u16) -> io::Result<Self> {
        let mut port = first;
        loop {
            match serve(&desk, port) {
                Ok(handle) => return Ok(Self { desk, port, handle }),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && port < PORTS.end => port += 1,
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) const fn port(&self) -> u16 {
        self.port
    }

    /// From now on connections are refused; at the end, the same port is listened on again. What was being answered is
    /// answered: the receiver must not take what the sender believes refused.
    pub(crate) async fn rest(self, until: impl Future<Output = ()>) -> io::Result<Self> {
        let stopping = actix_rt::spawn(self.handle.stop(true));
        until.await;
        let _ = stopping.await;
        Ok(Self { handle: serve(&self.desk, self.port)?, ..self })
    }
}

fn serve(desk: &Desk, port: u16) -> io::Result<ServerHandle> {
    let desk = Data::new(desk.clone());
    let app = move || App::new().app_data(desk.clone()).app_data(PayloadConfig::new(LARGEST_BODY)).default_service(web::post().to(receive));
    let server = HttpServer::new(app).workers(1).keep_alive(KEEP_ALIVE).disable_signals().bind(("127.0.0.1", port))?.run();
    let handle = server.handle();
    actix_rt::spawn(server);
    Ok(handle)
}

async fn receive(desk: Data<Desk>, request: HttpRequest, body: Bytes) -> HttpResponse {
    let Some((n, attempt)) = number(&request, JOB).zip(number(&request, ATTEMPT)) else { return HttpResponse::BadRequest().finish() };
    let event = desk.events.of(n);
    let same = body == event.payload.get() && request.headers().get(EVENT).is_some_and(|name| name == event.name.as_str());
    desk.ledger.came(n, attempt, !same);
    sleep(desk.receiver.pause()).await;
    // No await from here on: what the ledger says and what the sender hears is one step.
    match desk.receiver.answer(desk.seed, n, attempt) {
        Answer::Taken => {
            desk.ledger.taken(n);
            HttpResponse::NoContent().finish()
        }
        Answer::Gone => {
            desk.ledger.refused(n);
            HttpResponse::Gone().finish()
        }
        Answer::Busy { come_back: Some(wait) } => HttpResponse::ServiceUnavailable().insert_header((RETRY_AFTER, wait.as_secs())).finish(),
        Answer::Busy { come_back: None } => HttpResponse::ServiceUnavailable().finish(),
    }
}

fn number<T: std::str::FromStr>(request: &HttpRequest, name: &str) -> Option<T> {
    request.headers().get(name)?.to_str().ok()?.parse().ok()
}

/// Below the ports that the system gives to outgoing connections: while the receiver is down, one of those could take its
/// place, or even reach itself.
pub(crate) const PORTS: std::ops::Range<u16> = 20_000..30_000;
/// The largest job of journeyman, and some.
const LARGEST_BODY: usize = 2 << 20;
/// Longer than the client keeps a connection, so that it never writes into one that is being closed.
const KEEP_ALIVE: Duration = Duration::from_secs(60);
