//! Places in a function's body.
use super::program::{Function, Id, Kind, Node};

/// How many blocks a body has.
pub(super) fn blocks(body: &[Node]) -> usize {
    1 + body.iter().flat_map(|node| node.kind.blocks()).map(|block| blocks(block)).sum::<usize>()
}

/// The block of a number, outer ones first.
pub(super) fn block(body: &mut Vec<Node>, number: usize) -> &mut Vec<Node> {
    fn find<'a>(body: &'a mut Vec<Node>, left: &mut usize) -> Option<&'a mut Vec<Node>> {
        if *left == 0 {
            return Some(body);
        }
        for node in body {
            for block in node.kind.blocks_mut() {
                *left -= 1;
                if let Some(found) = find(block, left) {
                    return Some(found);
                }
            }
        }
        None
    }
    let mut left = number;
    find(body, &mut left).expect("there are as many blocks")
}

/// The block that a node is in, and its place there.
pub(super) fn of(body: &mut Vec<Node>, id: Id) -> Option<(&mut Vec<Node>, usize)> {
    let number = (0..blocks(body)).find(|number| block(body, *number).iter().any(|node| node.id == id))?;
    let block = block(body, number);
    let at = block.iter().position(|node| node.id == id)?;
    Some((block, at))
}

/// The node of an id.
pub(super) fn node(function: &mut Function, id: Id) -> &mut Node {
    let (block, at) = of(&mut function.body, id).expect("the node is in the function");
    &mut block[at]
}

/// The nodes of a function that fulfil a condition.
pub(super) fn all(function: &Function, fits: impl Fn(&Kind) -> bool) -> Vec<Id> {
    function.nodes().into_iter().filter(|node| fits(&node.kind)).map(|node| node.id).collect()
}
