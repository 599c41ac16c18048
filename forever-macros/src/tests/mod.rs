//! Tests of the passes, on tokens.
use proc_macro2::TokenStream;
use quote::quote;

use crate::expand::expand;

/// The expansion as text, formatted.
pub(crate) fn expanded(attr: TokenStream, item: TokenStream) -> String {
    let tokens = expand(attr, item);
    match syn::parse2::<syn::File>(tokens.clone()) {
        Ok(file) => prettyplease::unparse(&file),
        Err(error) => format!("{error}\n{tokens}"),
    }
}

#[test]
fn show() {
    println!(
        "{}",
        expanded(
            quote!(),
            quote! {
                async fn research(ctx: &FiberContext, model: Res<Model>, topic: String) -> anyhow::Result<Report> {
                    let plan = step!(model.plan(&topic).await?);
                    let mut notes = Vec::new();
                    for question in plan.questions {
                        let hits = step!("search", retry = Retry::times(3), search(&question).await?);
                        if hits.is_empty() { continue; }
                        notes.push(step!(model.summarise(&question, &hits).await?));
                    }
                    let style = if notes.len() > 3 { step!(model.short().await?) } else { Style::Long };
                    Ok(Report { topic, notes, style })
                }
            }
        )
    );
}
