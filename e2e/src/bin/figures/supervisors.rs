//! Fake supervisors, all in this program. The address to which a request is sent determines which of them responds.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse;
use axum::routing::{get, put};
use faultline_api::supervision::{
    ClusterReport, ClusterState, PLACES, Places, RunPhase, RunStatus, RunVerdict, STATUS,
};
use faultline_e2e::Failure;
use tokio::net::TcpListener;

/// Port of all supervisors.
const PORT: u16 = 7301;
/// Number of steps of the application in each process.
const STEPS: u64 = 1_000_000;
/// Number of steps per second, high enough that each status differs from the previous one.
const PACE: u64 = 50;

#[derive(Clone)]
pub(super) struct Supervisors {
    clusters: Arc<Vec<(String, u32)>>,
    all: Arc<Mutex<HashMap<IpAddr, Run>>>,
}

#[derive(Default)]
struct Run {
    generation: u64,
    places: usize,
    begun: Option<Instant>,
    over: bool,
}

impl Supervisors {
    /// Serves federations with these clusters, given by name and number of processes.
    pub(super) async fn start(clusters: Vec<(String, u32)>) -> Result<Supervisors, Failure> {
        let supervisors = Supervisors { clusters: Arc::new(clusters), all: Arc::default() };
        let app = Router::new()
            .route(STATUS, get(status))
            .route(PLACES, put(places))
            .with_state(supervisors.clone());
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))).await?;
        tokio::spawn(async { axum::serve(listener, app).await });
        Ok(supervisors)
    }

    /// Ends all runs.
    pub(super) fn complete(&self) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.values_mut().for_each(|it| it.over = true);
    }

    fn with<T>(&self, address: IpAddr, act: impl FnOnce(&mut Run) -> T) -> T {
        act(self.all.lock().unwrap_or_else(PoisonError::into_inner).entry(address).or_default())
    }

    fn status(&self, address: IpAddr, run: &Run) -> RunStatus {
        let done = run.begun.map_or(0, |it| (it.elapsed().as_millis() as u64 * PACE / 1000).min(STEPS));
        let (phase, state) = match run {
            Run { over: true, .. } => (RunPhase::Completed, ClusterState::Finished),
            Run { begun: Some(_), .. } => (RunPhase::Running, ClusterState::Running),
            _ => (RunPhase::Gathering, ClusterState::Starting),
        };
        let cluster = |(name, processes): &(String, u32)| ClusterReport {
            name: name.clone(),
            state,
            processes: *processes,
            up: if run.begun.is_some() { *processes } else { 0 },
            steps_done: done * u64::from(*processes),
            steps: STEPS * u64::from(*processes),
            ..ClusterReport::default()
        };
        RunStatus {
            supervisor: address.to_string(),
            phase,
            generation: run.generation,
            elapsed_seconds: run.begun.map(|it| it.elapsed().as_secs_f64()),
            clusters: self.clusters.iter().map(cluster).collect(),
            verdict: run.over.then_some(RunVerdict::Pass),
            ..RunStatus::default()
        }
    }
}

/// Returns the address to which a request was sent.
fn called(headers: &HeaderMap) -> Result<IpAddr, StatusCode> {
    let host = headers.get(HOST).and_then(|it| it.to_str().ok()?.parse::<SocketAddr>().ok());
    host.map(|it| it.ip()).ok_or(StatusCode::BAD_REQUEST)
}

async fn status(State(all): State<Supervisors>, headers: HeaderMap) -> Result<impl IntoResponse, StatusCode> {
    let address = called(&headers)?;
    let said = all.with(address, |it| all.status(address, it));
    let text = serde_json::to_vec(&said).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    Ok(([(CONTENT_TYPE, "application/json")], text))
}

async fn places(State(all): State<Supervisors>, headers: HeaderMap, body: Bytes) -> Result<(), StatusCode> {
    let said: Places = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let processes: u32 = all.clusters.iter().map(|it| it.1).sum();
    all.with(called(&headers)?, |it| {
        (it.generation, it.places) = (said.generation, said.places.len());
        if it.places == processes as usize {
            it.begun.get_or_insert_with(Instant::now);
        }
    });
    Ok(())
}
