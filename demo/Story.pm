# What the demo shows. Every command is printed as a person would type it, run, and its answer checked:
# a demo that shows something else than it says ends with "FAILED".
package Story;
use strict;
use warnings;
use JSON::PP qw(decode_json);

my ($dir, $url);

sub tell {
    ($dir, my $port) = @_;
    $url = "http://127.0.0.1:$port";
    my $espresso = q('{"item": "espresso machine", "quantity": 1}');

    chapter('An order is placed.');
    my $first = post('acme', 'key-1', $espresso, '/orders');
    expect('the application answers 201',       $first->{status} == 201);
    expect('one order in the table',            count('orders') == 1);

    chapter('The answer got lost; the client sends the same request again.');
    my $again = post('acme', 'key-1', $espresso, '/orders');
    expect('the same answer, octet for octet',  $again->{status} == 201 && $again->{body} eq $first->{body});
    expect('it says that it is a replay',       ($again->{'idempotency-replayed'} // '') eq 'true');
    expect('still one order in the table',      count('orders') == 1);

    chapter('Another request under the same key is a mistake, and told so.');
    my $other = post('acme', 'key-1', q('{"item": "espresso machine", "quantity": 2}'), '/orders');
    expect('422 key-reused',                    $other->{status} == 422 && $other->{body} =~ /key-reused/);
    expect('still one order in the table',      count('orders') == 1);

    chapter('Another merchant may have the same key. It is not the same order.');
    my $globex = post('globex', 'key-1', $espresso, '/orders');
    expect('an order of its own',               $globex->{status} == 201 && json($globex)->{merchant} eq 'globex');
    expect('two orders in the table',           count('orders') == 2);

    chapter('So is another route: a refund is not answered with an order.');
    my $refund = post('acme', 'key-1', q('{"order": 1}'), '/refunds');
    expect('the refund is made',                $refund->{status} == 201 && json($refund)->{refund} == 1);
    expect('one refund in the table',           count('refunds') == 1);

    chapter('A hundred clients, or one very nervous one: the same request 100 times at once.');
    my $grinder = q('{"item": "grinder", "quantity": 1}');
    my $sent = crowd('acme', 'key-2', $grinder, '/orders');
    expect('all answers are 201, or 409 in-progress', $sent->{201} && $sent->{201} + ($sent->{409} // 0) == 100);
    expect('one order of acme more in the table',     count('orders') == 3);
    $sent = crowd('acme', 'key-2', $grinder, '/orders');
    expect('once it is done all 100 get its answer',  ($sent->{201} // 0) == 100);
    expect('still the one order in the table',        count('orders') == 3);

    chapter('A CGI script, with octets that are no UTF-8. It ran once.');
    same_octets('label-1', q('Zaphod'), '/label', 'labels.log');

    chapter('An API behind the proxy. It ran once.');
    same_octets('payment-1', q('{"amount": "9.90"}'), '/payments', 'payments.log');

    chapter('What PostgreSQL holds of it.');
    show(q(psql -c "SELECT tenant_id, route, idem_key, status, response_code AS code, octet_length(response_body) AS octets FROM idempotency_records ORDER BY created_at"));
    expect('six operations, all SUCCEEDED',
        query(q(SELECT count(*), count(*) FILTER (WHERE status = 'SUCCEEDED') FROM idempotency_records)) eq '6|6');
}

# ---- what the chapters are made of

sub chapter { print "\n$_[0]\n" }

sub expect {
    my ($what, $holds) = @_;
    die "  FAILED: $what\n" unless $holds;
    print "  ok: $what\n";
}

sub post {
    my ($merchant, $key, $body, $path) = @_;
    my $request = request($merchant, $key, $body, $path);
    print "\n  \$ curl -i $request\n";
    system("curl -q -sS --noproxy '*' --max-time 30 -D $dir/head -o $dir/body $request") == 0 or die "  FAILED: curl\n";
    my ($line, @fields) = split /\r\n/, Services::slurp("$dir/head");
    my %answer = (body => Services::slurp("$dir/body"), map { /^([^:]+):\s*(.*)/ ? (lc $1, $2) : () } @fields);
    ($answer{status}) = $line =~ /^HTTP\S+ (\d+)/;
    print map { "  $_\n" } $line, (grep { /^(?:Idempotency|Location|Content-Type|Retry-After)/i } @fields);
    print '  ', printable($answer{body}), "\n\n";
    return \%answer;
}

# Sends a request a hundred times at once (what stands behind # is not sent) and counts the answers' status.
sub crowd {
    my $request = request(@_);
    $request =~ s/(\S+)$/'$1#[1-100]'/;
    my $command = "curl -Z --no-progress-meter --parallel-immediate --parallel-max 100 -o /dev/null -w '%{http_code}\\n' $request";
    print "\n  \$ $command | sort | uniq -c\n";
    my %count;
    $count{$_}++ for `${\ $command =~ s/curl/curl -q --noproxy '*' --max-time 60/r}` =~ /(\d+)/g;
    printf "  %7d %s\n", $count{$_}, $_ for sort keys %count;
    print "\n";
    return \%count;
}

sub same_octets {
    my ($key, $body, $path, $log) = @_;
    my $first = post('acme', $key, $body, $path);
    my $again = post('acme', $key, $body, $path);
    expect('the same answer, octet for octet', $first->{status} =~ /^20[01]$/ && $again->{status} == $first->{status}
        && $again->{body} eq $first->{body} && $again->{'content-type'} eq $first->{'content-type'});
    expect('it says that it is a replay',      ($again->{'idempotency-replayed'} // '') eq 'true');
    expect('the backend ran once',             (() = Services::slurp("$dir/$log") =~ /\n/g) == 1);
}

sub request {
    my ($merchant, $key, $body, $path) = @_;
    return "-u $merchant:secret -H 'Idempotency-Key: $key' -d $body $url$path";
}

sub show {
    my ($command) = @_;
    print "\n  \$ $command\n";
    print map { "  $_" } `$command`;
    expect('psql answers', $? == 0);
}

sub query { my ($sql) = @_; my $rows = `psql -XAtc "$sql"`; chomp $rows; return $rows }
sub count { return query("SELECT count(*) FROM $_[0]") }
sub json { return decode_json($_[0]{body}) }
sub printable { my ($text) = @_; chomp $text; $text =~ s/([^\n\x20-\x7e])/sprintf '\\x%02x', ord $1/ge; return $text =~ s/\n/\n  /gr }

sub commands {
    my ($port) = @_;
    $url = "http://127.0.0.1:$port";
    return join '', map { "    curl -i $_\n" }
        request('acme',   'my-first-key', q('{"item": "espresso machine", "quantity": 1}'), '/orders'),
        request('globex', 'my-first-key', q('{"item": "espresso machine", "quantity": 1}'), '/orders'),
        request('acme',   'my-first-key', q('{"order": 1}'), '/refunds'),
        request('acme',   'my-first-key', q('Zaphod'), '/label'),
        request('acme',   'my-first-key', q('{"amount": "9.90"}'), '/payments'),
        "-u acme:secret $url/orders";
}

1;
