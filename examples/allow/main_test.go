package main

func Example() {
	main()
	// Output: true 4 0s <nil>
}
