"""The machinery of judging: work items, kernels run over them, evidence, history, excuses, the engines that run them."""
