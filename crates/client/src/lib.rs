//! Code that concerns a federation's pods, for programs outside them: the names and ports of its objects, and
//! the client of its supervisor. The operator and `kubectl-faultline` share it; neither depends on the other.
//!
//! | module | content |
//! | --- | --- |
//! | [`naming`] | names and labels of a federation's objects, and the image of its processes |
//! | [`ports`] | ports of the programs in the pods |
//! | [`supervisor`] | the client of a supervisor's HTTP API |
//! | [`confined`] | privileges of pods and containers |
//! | [`probe`] | the pod that tests the kernel of a Kubernetes node |

pub mod confined;
pub mod naming;
pub mod ports;
pub mod probe;
pub mod supervisor;
