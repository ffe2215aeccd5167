//! What programs outside a federation's pods know about them: the names and ports of its objects, and the client of its
//! supervisor. The operator and `kubectl-faultline` share it; neither needs the other.
//!
//! | module | holds |
//! | --- | --- |
//! | [`naming`] | names and labels of what belongs to a federation, and the image of its processes |
//! | [`ports`] | where the programs in the pods listen |
//! | [`supervisor`] | the client of a supervisor's HTTP API |
//! | [`confined`] | what pods and containers may do |
//! | [`probe`] | the pod that tests the kernel of a Kubernetes node |

pub mod confined;
pub mod naming;
pub mod ports;
pub mod probe;
pub mod supervisor;
