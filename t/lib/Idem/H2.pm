package Idem::H2;

# The few frames of HTTP/2 that a client of our own needs, to stop where no ordinary client would: RFC 9113; fields as
# literals, RFC 7541 section 6.2.2.

use strict;
use warnings;
use Exporter 'import';
use MIME::Base64 ();

our @EXPORT = qw(frame h2_data h2_preface h2_head h2_request h2_reset);

sub frame { my ($type, $flags, $stream, $payload) = @_; return substr(pack('N', length $payload), 1) . pack('CCN', $type, $flags, $stream) . $payload }
sub text { my ($s) = @_; return (length $s < 127 ? chr length $s : "\x7f" . chr(length($s) - 127)) . $s }

# What a connection begins with.
sub h2_preface { return "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(4, 0, 0, '') }

# The head of a POST of user a; its body is to follow in DATA frames (type 0), the last of them with flag 1.
sub h2_head {
    my ($port, $stream, $target, @fields) = @_;
    my @all = (':method' => 'POST', ':scheme' => 'http', ':authority' => "localhost:$port", ':path' => $target,
        authorization => 'Basic ' . MIME::Base64::encode_base64('a:a', ''), 'content-type' => 'application/json', @fields);
    my $block = '';
    while (my ($name, $value) = splice @all, 0, 2) {
        $block .= "\0" . text($name) . text($value);
    }
    return frame(1, 4, $stream, $block);
}

sub h2_request {
    my ($port, $stream, $target, $body, @fields) = @_;
    return h2_head($port, $stream, $target, @fields) . frame(0, 1, $stream, $body);
}

# RST_STREAM, CANCEL.
sub h2_reset { my ($stream) = @_; return frame(3, 0, $stream, pack 'N', 8) }

# The content that has come so far, of all streams, out of whatever frames it was cut into.
sub h2_data {
    my ($buffer) = @_;
    my $data = '';
    while (length $buffer >= 9) {
        my ($length, $type, $flags) = (unpack('N', "\0" . substr $buffer, 0, 3), unpack 'CC', substr $buffer, 3, 2);
        last if length $buffer < 9 + $length;
        my $payload = substr $buffer, 9, $length;
        my $padding = $flags & 8 ? unpack 'C', $payload : 0;
        $data .= substr $payload, ($flags & 8 ? 1 : 0), $length - $padding - ($flags & 8 ? 1 : 0) if !$type;
        substr $buffer, 0, 9 + $length, '';
    }
    return $data;
}

1;
