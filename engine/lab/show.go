package lab

import (
	"fmt"

	"github.com/janpfeifer/gonb/gonbui"
	"github.com/janpfeifer/gonb/gonbui/protocol"
)

// show displays rich output in a notebook, with plain text for readers that cannot
// render it, and prints the plain text everywhere else.
func show(mime protocol.MIMEType, rich, plain string) {
	if !gonbui.IsNotebook {
		fmt.Println(plain)
		return
	}
	gonbui.SendData(&protocol.DisplayData{Data: map[protocol.MIMEType]any{mime: rich, protocol.MIMETextPlain: plain}})
	gonbui.Sync() // the process may end right after this
}

// ShowSVG shows a picture that somebody else drew; text stands for it elsewhere.
func ShowSVG(svg, text string) { show(protocol.MIMEImageSVG, svg, text) }
