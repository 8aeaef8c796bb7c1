// Reads operations of one register from standard input, one a line: client, function (0 read, 1 write), value, call, return.
// Prints the answer and the seconds that Porcupine's check took; the first argument is its limit in seconds.
package main

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

type input struct {
	write bool
	value int
}

func main() {
	limit, _ := strconv.Atoi(os.Args[1])
	var operations []porcupine.Operation
	scanner := bufio.NewScanner(os.Stdin)
	for scanner.Scan() {
		var client, function, value int
		var call, back int64
		fmt.Sscan(scanner.Text(), &client, &function, &value, &call, &back)
		operation := porcupine.Operation{ClientId: client, Input: input{function == 1, value}, Call: call, Output: value, Return: back}
		operations = append(operations, operation)
	}
	model := porcupine.Model{
		Init: func() interface{} { return -1 },
		Step: func(state, in, out interface{}) (bool, interface{}) {
			asked := in.(input)
			if asked.write {
				return true, asked.value
			}
			return out.(int) == state.(int), state
		},
	}
	start := time.Now()
	answer := porcupine.CheckOperationsTimeout(model, operations, time.Duration(limit)*time.Second)
	fmt.Println(answer, time.Since(start).Seconds())
}
