// What is shown in place of what cannot be rendered.
import { Component } from "react";

/** Renders `fallback(error)` if its children fail, until `value` changes. */
export class Boundary extends Component {
  state = { value: undefined, error: undefined };
  static getDerivedStateFromError(error) {
    return { error };
  }
  static getDerivedStateFromProps({ value }, state) {
    return value === state.value ? null : { value, error: undefined };
  }
  render() {
    return this.state.error ? this.props.fallback(this.state.error) : this.props.children;
  }
}
