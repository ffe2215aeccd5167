//! What is known of the pods and sets of each federation: a copy of what the API server has, kept up by a watch.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use faultline_api::Federation;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher::Event;
use kube::{Resource, ResourceExt};

use crate::naming;

/// Objects by the federation that they belong to, and by name.
#[derive(Debug)]
pub struct Mirror<K>(Mutex<Content<K>>);

#[derive(Debug)]
struct Content<K> {
    known: HashMap<String, BTreeMap<String, Arc<K>>>,
    /// Seen since the watch began anew.
    fresh: Option<HashMap<String, BTreeMap<String, Arc<K>>>>,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Mirror(Mutex::new(Content { known: HashMap::new(), fresh: None }))
    }
}

impl<K: Resource<DynamicType = ()> + Clone> Mirror<K> {
    /// The objects of the federation with this UID, by name.
    pub fn of(&self, federation: &str) -> BTreeMap<String, Arc<K>> {
        let content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        content.known.get(federation).cloned().unwrap_or_default()
    }

    /// Follows the watch. Returns the federations that something has changed for.
    pub fn follow(&self, event: Event<K>) -> BTreeSet<ObjectName> {
        let mut content = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            Event::Apply(object) => {
                let touched = ObjectName::of(&object);
                insert(&mut content.known, object);
                touched.into_iter().collect()
            }
            Event::Delete(object) => {
                let (federation, name) = (belongs_to(&object), object.name_any());
                if let Some(objects) = content.known.get_mut(&federation) {
                    objects.remove(&name);
                    if objects.is_empty() {
                        content.known.remove(&federation);
                    }
                }
                ObjectName::of(&object).into_iter().collect()
            }
            Event::Init => {
                content.fresh = Some(HashMap::new());
                BTreeSet::new()
            }
            Event::InitApply(object) => {
                if let Some(fresh) = &mut content.fresh {
                    insert(fresh, object);
                }
                BTreeSet::new()
            }
            Event::InitDone => {
                // What is gone touched its federation, too.
                let before = names(&content.known);
                content.known = content.fresh.take().unwrap_or_default();
                names(&content.known).union(&before).cloned().collect()
            }
        }
    }
}

/// A federation by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectName {
    fn of<K: Resource<DynamicType = ()>>(object: &K) -> Option<ObjectName> {
        let name = object.labels().get(naming::FEDERATION)?.clone();
        Some(ObjectName { namespace: object.namespace().unwrap_or_default(), name })
    }

    /// As the controller names it.
    pub fn reference(&self) -> ObjectRef<Federation> {
        ObjectRef::new(&self.name).within(&self.namespace)
    }
}

fn belongs_to<K: Resource<DynamicType = ()>>(object: &K) -> String {
    object.labels().get(naming::UID).cloned().unwrap_or_default()
}

fn insert<K: Resource<DynamicType = ()>>(into: &mut HashMap<String, BTreeMap<String, Arc<K>>>, object: K) {
    into.entry(belongs_to(&object)).or_default().insert(object.name_any(), Arc::new(object));
}

fn names<K: Resource<DynamicType = ()>>(
    known: &HashMap<String, BTreeMap<String, Arc<K>>>,
) -> BTreeSet<ObjectName> {
    let objects: Vec<&Arc<K>> = known.values().filter_map(|it| it.values().next()).collect();
    objects.into_iter().filter_map(|it| ObjectName::of(&**it)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::Pod;

    fn pod(federation: &str, name: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.into());
        pod.metadata.namespace = Some("default".into());
        let labels = [(naming::UID, format!("uid-of-{federation}")), (naming::FEDERATION, federation.into())];
        pod.metadata.labels = Some(labels.map(|(name, value)| (name.into(), value)).into());
        pod
    }

    fn touched(mirror: &Mirror<Pod>, event: Event<Pod>) -> Vec<String> {
        mirror.follow(event).into_iter().map(|it| it.name).collect()
    }

    fn known(mirror: &Mirror<Pod>, federation: &str) -> Vec<String> {
        mirror.of(&format!("uid-of-{federation}")).into_keys().collect()
    }

    #[test]
    fn changes_touch_the_federation_that_the_object_belongs_to() {
        let mirror = Mirror::default();
        assert_eq!(touched(&mirror, Event::Apply(pod("a", "a-0"))), ["a"]);
        assert_eq!(touched(&mirror, Event::Apply(pod("b", "b-0"))), ["b"]);
        assert_eq!(known(&mirror, "a"), ["a-0"]);
        assert_eq!(touched(&mirror, Event::Delete(pod("a", "a-0"))), ["a"]);
        assert_eq!(known(&mirror, "a"), [""; 0]);
        assert_eq!(known(&mirror, "b"), ["b-0"]);
    }

    #[test]
    fn a_watch_that_begins_anew_forgets_what_went_unseen_and_touches_whom_it_belonged_to() {
        let mirror = Mirror::default();
        touched(&mirror, Event::Apply(pod("a", "a-0")));
        touched(&mirror, Event::Apply(pod("gone", "gone-0")));
        assert_eq!(touched(&mirror, Event::Init), [""; 0]);
        assert_eq!(touched(&mirror, Event::InitApply(pod("a", "a-0"))), [""; 0]);
        assert_eq!(known(&mirror, "gone"), ["gone-0"], "until all is known, what was known counts");
        assert_eq!(touched(&mirror, Event::InitDone), ["a", "gone"]);
        assert_eq!(known(&mirror, "gone"), [""; 0]);
    }
}
