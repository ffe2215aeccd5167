//! Code for programs that work with a federation on Kubernetes from outside its pods: the object and its definition, the
//! names and ports of the objects that belong to it, and a client for its supervisor. The operator and
//! `kubectl-faultline` share it; neither depends on the other.
//!
//! | module | content |
//! | --- | --- |
//! | [`api_error`] | errors of requests to the API server, as a user reads them |
//! | [`naming`] | names and labels of a federation's objects, and the image of its processes |
//! | [`object`] | a federation as an object, and the custom resource definition |
//! | [`status`] | the status of a federation |
//! | [`outline`] | federations whose specs may be unreadable |
//! | [`ports`] | ports of the programs in the pods |
//! | [`supervisor`] | a client for a supervisor's HTTP API |
//! | [`confined`] | privileges of pods and containers |
//! | [`probe`] | the pod that tests the kernel of a Kubernetes node |

pub mod api_error;
pub mod confined;
pub mod naming;
pub mod object;
pub mod outline;
pub mod ports;
pub mod probe;
pub mod status;
pub mod supervisor;
