//! Lists that are read page by page. Users of a namespace determine how many objects it contains and how large they are, so
//! a whole list could exceed the operator's memory.

use kube::api::ListParams;
use kube::core::ObjectList;

/// Number of objects in a page.
pub const PAGE: u32 = 20;

/// Requests all pages of a list with these parameters, and passes each object to `see`.
///
/// # Errors
///
/// Fails if a request fails.
pub async fn each<K, F>(
    parameters: ListParams,
    request: impl Fn(ListParams) -> F,
    mut see: impl FnMut(K),
) -> kube::Result<()>
where
    K: Clone,
    F: Future<Output = kube::Result<ObjectList<K>>>,
{
    let mut page = parameters.limit(PAGE);
    loop {
        let listed = request(page.clone()).await?;
        listed.items.into_iter().for_each(&mut see);
        match listed.metadata.continue_.filter(|it| !it.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}
